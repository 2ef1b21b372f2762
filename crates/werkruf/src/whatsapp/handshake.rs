//! Meta's check that a webhook belongs to whoever registered it: the right token is answered with the challenge.

use percent_encoding::percent_decode_str;
use secrecy::SecretString;

use super::signature::same_secret;

/// Meta's challenges are short numbers.
const MAX_CHALLENGE: usize = 1024;

/// The challenge of a query whose token is one of these; `None` refuses it.
pub(super) fn challenge<'a>(query: &str, tokens: impl IntoIterator<Item = &'a SecretString>) -> Option<String> {
    let (mut mode, mut token, mut challenge) = (None, None, None);
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        let value = percent_decode_str(&value.replace('+', " ")).decode_utf8().ok()?.into_owned();
        match name {
            "hub.mode" => mode = Some(value),
            "hub.verify_token" => token = Some(value),
            "hub.challenge" => challenge = Some(value),
            _ => {}
        }
    }
    let (token, challenge) = (token?, challenge.filter(|text| !text.is_empty() && text.len() <= MAX_CHALLENGE)?);
    // All tokens are compared, so that the time says nothing about which one was near.
    let known = tokens.into_iter().fold(false, |known, own| same_secret(&token, own) | known);
    (known && mode.as_deref() == Some("subscribe")).then_some(challenge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_subscription_with_a_known_token_gets_its_challenge() {
        let tokens = [SecretString::from("one+1"), SecretString::from("two words")];
        let answer = |query: &str| challenge(query, &tokens);
        assert_eq!(answer("hub.mode=subscribe&hub.challenge=42&hub.verify_token=one%2B1").as_deref(), Some("42"));
        assert_eq!(answer("hub.verify_token=two+words&hub.challenge=a%20b&hub.mode=subscribe&x").as_deref(), Some("a b"));
        for refused in [
            "",
            "hub.challenge=42",
            "hub.mode=subscribe&hub.challenge=42&hub.verify_token=wrong",
            "hub.mode=subscribe&hub.challenge=42&hub.verify_token=",
            "hub.mode=unsubscribe&hub.challenge=42&hub.verify_token=one%2B1",
            "hub.mode=subscribe&hub.verify_token=one%2B1",
            "hub.mode=subscribe&hub.challenge=%ff&hub.verify_token=one%2B1",
        ] {
            assert_eq!(answer(refused), None, "{refused}");
        }
        assert_eq!(challenge("hub.mode=subscribe&hub.challenge=42&hub.verify_token=", []), None);
    }
}
