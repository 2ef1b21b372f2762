//! The format of API keys.

/// The prefix of every API key.
pub(super) const KEY_PREFIX: &str = "wk_";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Encodes 256 random bits as an API key: `wk_` and 43 characters of URL-safe base64.
pub fn new_secret(random: [u8; 32]) -> String {
    let mut secret = String::with_capacity(KEY_PREFIX.len() + 43);
    secret.push_str(KEY_PREFIX);
    for group in random.chunks(3) {
        let bits = group.iter().enumerate().fold(0_u32, |bits, (at, byte)| bits | (u32::from(*byte) << (16 - 8 * at)));
        for at in 0..=group.len() {
            let index = (bits >> (18 - 6 * at)) & 63;
            secret.push(char::from(URL_SAFE[index as usize]));
        }
    }
    secret
}

#[cfg(test)]
mod tests {
    use super::new_secret;

    #[test]
    fn a_secret_is_url_safe_base64_without_padding() {
        let zeros = new_secret([0; 32]);
        assert_eq!(zeros, format!("wk_{}", "A".repeat(43)));
        assert_eq!(new_secret([255; 32]), format!("wk_{}8", "_".repeat(42)));
        let mut counting = [0_u8; 32];
        for (at, byte) in (0_u8..).zip(counting.iter_mut()) {
            *byte = at;
        }
        assert_eq!(new_secret(counting), "wk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8");
    }
}
