//! The world's airports by code. Providers answer an unknown code with an empty list, so it is found out here first.

use std::sync::OnceLock;

use werkruf_contract::fold;

/// Made by `data/make_airports.py`; its licence lies beside it.
const CODES: &str = include_str!("../../data/airports.txt");

/// Cities people name instead of a code, without case and accents, in our three languages.
const CITIES: &[(&str, &str)] = &[
    ("amsterdam", "AMS"),
    ("athen", "ATH"),
    ("athens", "ATH"),
    ("atenas", "ATH"),
    ("bangkok", "BKK"),
    ("barcelona", "BCN"),
    ("berlin", "BER"),
    ("boston", "BOS"),
    ("brussel", "BRU"),
    ("bruselas", "BRU"),
    ("brussels", "BRU"),
    ("buenos aires", "BUE"),
    ("chicago", "CHI"),
    ("delhi", "DEL"),
    ("dubai", "DXB"),
    ("dublin", "DUB"),
    ("dusseldorf", "DUS"),
    ("duesseldorf", "DUS"),
    ("frankfurt", "FRA"),
    ("francfort", "FRA"),
    ("genf", "GVA"),
    ("geneva", "GVA"),
    ("ginebra", "GVA"),
    ("hamburg", "HAM"),
    ("hamburgo", "HAM"),
    ("helsinki", "HEL"),
    ("hong kong", "HKG"),
    ("hongkong", "HKG"),
    ("istanbul", "IST"),
    ("estambul", "IST"),
    ("johannesburg", "JNB"),
    ("johannesburgo", "JNB"),
    ("kapstadt", "CPT"),
    ("cape town", "CPT"),
    ("ciudad del cabo", "CPT"),
    ("koln", "CGN"),
    ("cologne", "CGN"),
    ("colonia", "CGN"),
    ("kopenhagen", "CPH"),
    ("copenhagen", "CPH"),
    ("copenhague", "CPH"),
    ("lima", "LIM"),
    ("lisboa", "LIS"),
    ("lisbon", "LIS"),
    ("lissabon", "LIS"),
    ("london", "LON"),
    ("londres", "LON"),
    ("los angeles", "LAX"),
    ("madrid", "MAD"),
    ("mailand", "MIL"),
    ("milan", "MIL"),
    ("mexico city", "MEX"),
    ("mexiko-stadt", "MEX"),
    ("ciudad de mexico", "MEX"),
    ("miami", "MIA"),
    ("montreal", "YUL"),
    ("mumbai", "BOM"),
    ("munchen", "MUC"),
    ("muenchen", "MUC"),
    ("munich", "MUC"),
    ("new york", "NYC"),
    ("nueva york", "NYC"),
    ("oslo", "OSL"),
    ("palma", "PMI"),
    ("paris", "PAR"),
    ("peking", "BJS"),
    ("beijing", "BJS"),
    ("pekin", "BJS"),
    ("prag", "PRG"),
    ("prague", "PRG"),
    ("praga", "PRG"),
    ("rom", "ROM"),
    ("rome", "ROM"),
    ("roma", "ROM"),
    ("san francisco", "SFO"),
    ("sao paulo", "SAO"),
    ("seoul", "SEL"),
    ("seul", "SEL"),
    ("shanghai", "SHA"),
    ("singapur", "SIN"),
    ("singapore", "SIN"),
    ("stockholm", "STO"),
    ("estocolmo", "STO"),
    ("stuttgart", "STR"),
    ("sydney", "SYD"),
    ("sidney", "SYD"),
    ("tokio", "TYO"),
    ("tokyo", "TYO"),
    ("toronto", "YTO"),
    ("valencia", "VLC"),
    ("vancouver", "YVR"),
    ("warschau", "WAW"),
    ("warsaw", "WAW"),
    ("varsovia", "WAW"),
    ("washington", "WAS"),
    ("wien", "VIE"),
    ("vienna", "VIE"),
    ("viena", "VIE"),
    ("zurich", "ZRH"),
    ("zuerich", "ZRH"),
];

/// Whether there is an airport, or a city with several, of this code.
pub(super) fn is_known(code: &str) -> bool {
    static SORTED: OnceLock<Vec<&str>> = OnceLock::new();
    SORTED.get_or_init(|| CODES.split_whitespace().collect()).binary_search(&code).is_ok()
}

/// A code as people write it: any case, spaces around it. Large cities are taken by their names.
pub(super) fn read(text: &str) -> Option<String> {
    let code = text.trim().to_ascii_uppercase();
    if is_known(&code) {
        return Some(code);
    }
    city(text.trim()).map(str::to_owned)
}

/// The code of a city by its name.
pub(super) fn city(name: &str) -> Option<&'static str> {
    let name = fold(name);
    CITIES.iter().find(|(known, _)| *known == name).map(|(_, code)| *code)
}

/// The longest city name a text begins with, and how many characters of the folded text it takes.
pub(super) fn city_at(folded: &str) -> Option<(&'static str, usize)> {
    let ends = |name: &str| folded[name.len()..].chars().next().is_none_or(|next| !next.is_alphanumeric());
    let fitting = CITIES.iter().filter(|(name, _)| folded.starts_with(name) && ends(name));
    fitting.max_by_key(|(name, _)| name.len()).map(|(name, code)| (*code, name.len()))
}

#[cfg(test)]
mod tests {
    use super::{CITIES, CODES, is_known, read};

    #[test]
    fn the_list_is_sorted_and_covers_the_world() {
        let codes: Vec<&str> = CODES.split_whitespace().collect();
        assert!(codes.len() > 7000 && codes.is_sorted());
        for code in ["FRA", "JFK", "LHR", "NRT", "GRU", "SYD", "JNB", "BER", "LON", "NYC", "TYO", "USH", "LYR"] {
            assert!(is_known(code), "{code}");
        }
        assert!(!is_known("XXX") && !is_known("fra") && !is_known("") && !is_known("FRAN"));
        assert!(CITIES.iter().all(|(_, code)| is_known(code)));
    }

    #[test]
    fn codes_and_large_cities_are_understood() {
        assert_eq!(read(" fra "), Some("FRA".to_owned()));
        assert_eq!(read("München"), Some("MUC".to_owned()));
        assert_eq!(read("Nueva York"), Some("NYC".to_owned()));
        assert_eq!((read("QQQ"), read("Hintertupfing")), (None, None));
    }
}
