//! The currencies that a search may name.

/// The active currencies of ISO 4217. Funds, metals and the codes for tests are left out, because no flight is sold in them.
const ACTIVE: [&str; 155] = [
    "AED", "AFN", "ALL", "AMD", "AOA", "ARS", "AUD", "AWG", "AZN", "BAM", "BBD", "BDT", "BHD", "BIF", "BMD", "BND", "BOB", "BRL", "BSD",
    "BTN", "BWP", "BYN", "BZD", "CAD", "CDF", "CHF", "CLP", "CNY", "COP", "CRC", "CUP", "CVE", "CZK", "DJF", "DKK", "DOP", "DZD", "EGP",
    "ERN", "ETB", "EUR", "FJD", "FKP", "GBP", "GEL", "GHS", "GIP", "GMD", "GNF", "GTQ", "GYD", "HKD", "HNL", "HTG", "HUF", "IDR", "ILS",
    "INR", "IQD", "IRR", "ISK", "JMD", "JOD", "JPY", "KES", "KGS", "KHR", "KMF", "KPW", "KRW", "KWD", "KYD", "KZT", "LAK", "LBP", "LKR",
    "LRD", "LSL", "LYD", "MAD", "MDL", "MGA", "MKD", "MMK", "MNT", "MOP", "MRU", "MUR", "MVR", "MWK", "MXN", "MYR", "MZN", "NAD", "NGN",
    "NIO", "NOK", "NPR", "NZD", "OMR", "PAB", "PEN", "PGK", "PHP", "PKR", "PLN", "PYG", "QAR", "RON", "RSD", "RUB", "RWF", "SAR", "SBD",
    "SCR", "SDG", "SEK", "SGD", "SHP", "SLE", "SOS", "SRD", "SSP", "STN", "SVC", "SYP", "SZL", "THB", "TJS", "TMT", "TND", "TOP", "TRY",
    "TTD", "TWD", "TZS", "UAH", "UGX", "USD", "UYU", "UZS", "VED", "VES", "VND", "VUV", "WST", "XAF", "XCD", "XCG", "XOF", "XPF", "YER",
    "ZAR", "ZMW", "ZWG",
];

/// The code of a currency as ISO 4217 writes it.
pub(super) fn read(text: &str) -> Option<&'static str> {
    let text = text.trim();
    ACTIVE.into_iter().find(|code| code.eq_ignore_ascii_case(text))
}

#[cfg(test)]
mod tests {
    use super::{ACTIVE, read};

    #[test]
    fn the_list_is_in_order_and_has_no_code_twice() {
        assert!(ACTIVE.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn only_money_that_is_in_use_is_known() {
        assert_eq!([read(" eur "), read("USD"), read("xpf")], [Some("EUR"), Some("USD"), Some("XPF")]);
        for unknown in ["EURO", "ZZZ", "XXX", "XTS", "XAU", "DEM", "HRK", "", "€"] {
            assert_eq!(read(unknown), None, "{unknown}");
        }
    }
}
