//! The four cabin classes, as each provider spells them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A cabin class; serialized as in the tool's arguments and at Amadeus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Cabin {
    Economy,
    PremiumEconomy,
    Business,
    First,
}

impl Cabin {
    /// From the lowest class to the highest.
    pub const ALL: [Self; 4] = [Self::Economy, Self::PremiumEconomy, Self::Business, Self::First];

    /// Parses any common spelling: `BUSINESS`, `business`, `premium`, `J`.
    pub fn read(text: &str) -> Option<Self> {
        match text.trim().to_ascii_lowercase().replace([' ', '-'], "_").as_str() {
            "economy" | "eco" | "y" => Some(Self::Economy),
            "premium_economy" | "premium" | "w" => Some(Self::PremiumEconomy),
            "business" | "j" => Some(Self::Business),
            "first" | "f" => Some(Self::First),
            _ => None,
        }
    }

    /// `BUSINESS`: the tool's arguments and Amadeus.
    pub const fn upper(self) -> &'static str {
        match self {
            Self::Economy => "ECONOMY",
            Self::PremiumEconomy => "PREMIUM_ECONOMY",
            Self::Business => "BUSINESS",
            Self::First => "FIRST",
        }
    }

    /// `premium`: Seats.aero.
    pub const fn award(self) -> &'static str {
        match self {
            Self::Economy => "economy",
            Self::PremiumEconomy => "premium",
            Self::Business => "business",
            Self::First => "first",
        }
    }

    /// `premium_economy`: Duffel, and the keys of the texts.
    pub const fn lower(self) -> &'static str {
        match self {
            Self::PremiumEconomy => "premium_economy",
            Self::Economy | Self::Business | Self::First => self.award(),
        }
    }

    /// The prefix of the class's columns at Seats.aero.
    pub const fn letter(self) -> char {
        match self {
            Self::Economy => 'Y',
            Self::PremiumEconomy => 'W',
            Self::Business => 'J',
            Self::First => 'F',
        }
    }

    /// `Premium Economy`: results in the legacy format.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Economy => "Economy",
            Self::PremiumEconomy => "Premium Economy",
            Self::Business => "Business",
            Self::First => "First",
        }
    }
}
