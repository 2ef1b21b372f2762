//! Loyalty programs and alliances: common names, names at Seats.aero and airline codes.

use werkruf_contract::fold;

/// A program: its name at Seats.aero, its official name, and aliases. Names are compared without case, accents and spaces.
type Program = (&'static str, &'static str, &'static [&'static str]);

const PROGRAMS: &[Program] = &[
    ("aeromexico", "Aeromexico Rewards", &["am", "clubpremier"]),
    ("aeroplan", "Air Canada Aeroplan", &["ac", "aircanada"]),
    ("alaska", "Alaska Mileage Plan", &["as", "mileageplan", "atmos", "atmosrewards", "alaskaairlines"]),
    ("american", "American AAdvantage", &["aa", "aadvantage", "americanairlines"]),
    ("azul", "Azul Fidelidade", &["ad", "tudoazul", "azulfidelidade"]),
    ("british", "British Airways Club", &["ba", "avios", "executiveclub", "britishairways", "britishairwaysavios"]),
    ("connectmiles", "Copa ConnectMiles", &["cm", "copa", "copaairlines"]),
    ("delta", "Delta SkyMiles", &["dl", "skymiles", "deltaairlines"]),
    ("emirates", "Emirates Skywards", &["ek", "skywards"]),
    ("ethiopian", "Ethiopian ShebaMiles", &["et", "shebamiles", "ethiopianairlines"]),
    ("etihad", "Etihad Guest", &["ey", "etihadguest", "etihadairways"]),
    ("eurobonus", "SAS EuroBonus", &["sk", "sas", "scandinavian"]),
    ("finnair", "Finnair Plus", &["ay", "finnairplus"]),
    ("flyingblue", "Air France-KLM Flying Blue", &["af", "kl", "airfrance", "klm", "airfranceklm"]),
    ("frontier", "Frontier Miles", &["f9", "frontiermiles", "frontierairlines"]),
    ("jetblue", "JetBlue TrueBlue", &["b6", "trueblue"]),
    ("lufthansa", "Miles & More", &["lh", "milesandmore", "milesmore", "mam", "m&m"]),
    ("qantas", "Qantas Frequent Flyer", &["qf", "qantasfrequentflyer"]),
    ("qatar", "Qatar Privilege Club", &["qr", "privilegeclub", "qatarairways"]),
    ("saudia", "Saudia AlFursan", &["sv", "alfursan"]),
    ("singapore", "Singapore KrisFlyer", &["sq", "krisflyer", "singaporeairlines"]),
    ("smiles", "GOL Smiles", &["g3", "gol"]),
    ("spirit", "Free Spirit", &["nk", "freespirit", "spiritairlines"]),
    ("turkish", "Turkish Miles&Smiles", &["tk", "milesandsmiles", "miles&smiles", "turkishairlines"]),
    ("united", "United MileagePlus", &["ua", "mileageplus", "unitedairlines"]),
    ("velocity", "Virgin Australia Velocity", &["va", "velocityfrequentflyer", "virginaustralia"]),
    ("virginatlantic", "Virgin Atlantic Flying Club", &["vs", "flyingclub", "virgin"]),
];

const ALLIANCES: &[(&str, &[&str], &[&str])] = &[
    (
        "star",
        &["staralliance", "starallianz"],
        &[
            "A3", "AC", "AI", "AV", "BR", "CA", "CM", "ET", "LH", "LO", "LX", "MS", "NH", "NZ", "OS", "OU", "OZ", "SA", "SN", "SQ", "TG",
            "TK", "TP", "UA", "ZH",
        ],
    ),
    ("oneworld", &["oneworldalliance"], &["AA", "AS", "AT", "AY", "BA", "CX", "FJ", "HA", "IB", "JL", "MH", "QF", "QR", "RJ", "UL", "WY"]),
    (
        "skyteam",
        &["skyteamalliance"],
        &["AF", "AM", "AR", "CI", "DL", "GA", "KE", "KL", "KQ", "ME", "MF", "MU", "RO", "SK", "SV", "UX", "VN", "VS"],
    ),
];

/// The Seats.aero name of the program with this name or alias.
pub(super) fn source(text: &str) -> Option<&'static str> {
    let wanted = normalized(text);
    PROGRAMS
        .iter()
        .find(|(source, label, aliases)| *source == wanted || normalized(label) == wanted || aliases.contains(&wanted.as_str()))
        .map(|(source, _, _)| *source)
}

/// The official name of a program; an unknown program is returned unchanged.
pub(super) fn label(source: &str) -> &str {
    PROGRAMS.iter().find(|(known, _, _)| *known == source).map_or(source, |(_, label, _)| *label)
}

/// The airlines of an alliance; `None` for an unknown alliance.
pub(super) fn members(alliance: &str) -> Option<&'static [&'static str]> {
    let wanted = normalized(alliance);
    ALLIANCES.iter().find(|(name, aliases, _)| *name == wanted || aliases.contains(&wanted.as_str())).map(|(_, _, members)| *members)
}

/// All names at Seats.aero, for error messages.
pub(super) fn sources() -> Vec<&'static str> {
    PROGRAMS.iter().map(|(source, _, _)| *source).collect()
}

fn normalized(text: &str) -> String {
    fold(text).chars().filter(|c| c.is_alphanumeric() || *c == '&').collect()
}

#[cfg(test)]
mod tests {
    use super::{members, source};

    #[test]
    fn programs_are_found_by_common_names() {
        for (name, meant) in [
            ("Miles & More", "lufthansa"),
            ("miles and more", "lufthansa"),
            ("Aeroplan", "aeroplan"),
            ("British Airways", "british"),
            ("UA", "united"),
            ("united mileageplus", "united"),
            ("Flying Blue", "flyingblue"),
            ("SAS EuroBonus", "eurobonus"),
        ] {
            assert_eq!(source(name), Some(meant), "{name}");
        }
        assert_eq!(source("Payback"), None);
        assert!(members("Star Alliance").is_some_and(|codes| codes.contains(&"LH")));
        assert!(members("ONEWORLD").is_some() && members("SkyTeam").is_some() && members("none").is_none());
    }
}
