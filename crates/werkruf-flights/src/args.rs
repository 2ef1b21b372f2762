//! The arguments of `search_flights`, and how a request is completed over several messages.
//!
//! No argument is required; the tool asks for missing ones. Precedence: the arguments of the call, then the pending request
//! in the session state, then the last request (if `reuse_last_request` is set), then the user's preferences, then the
//! assistant's defaults.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use werkruf_contract::State;

use super::airports;
use super::cabin::Cabin;

/// The session state field of a request that still misses arguments.
pub(super) const PENDING: &str = "pending_flight_request";
/// The session state field of the last complete request.
pub(super) const LAST: &str = "last_flight_request";

/// The most days before and after the wanted one.
pub(super) const MAX_FLEXIBILITY: i64 = 3;
/// The arguments for which an assistant may have defaults.
pub(super) const DEFAULTS: [&str; 6] = ["award_only", "cabin", "currency", "flexibility", "loyalty_programs", "max_results"];

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Args {
    /// Airport or city of departure, as IATA code
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Airport or city of arrival, as IATA code
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// Day of departure, YYYY-MM-DD
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date"))]
    pub depart_date: Option<String>,
    /// Day of the return flight, YYYY-MM-DD; leave it out for one way
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date"))]
    pub return_date: Option<String>,
    /// Adults, 1 to 9; 1 by default
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 9))]
    pub pax: Option<u32>,
    /// Children from 2 to 11 years
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 8))]
    pub children: Option<u32>,
    /// Infants on a lap, at most one per adult
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9))]
    pub infants: Option<u32>,
    /// Class of travel
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cabin: Option<Cabin>,
    /// Only flights for miles; false shows flights for money beside them
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub award_only: Option<bool>,
    /// The same as award_only
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub use_miles: Option<bool>,
    /// Loyalty programs to look in, such as aeroplan or Miles & More; all by default
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loyalty_programs: Option<Vec<String>>,
    /// Further constraints
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraints: Option<Constraints>,
    /// The same as constraints.nonstop_only
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub non_stop: Option<bool>,
    /// Days before and after that would do as well, for flights for miles
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3))]
    pub flexibility: Option<i64>,
    /// Currency of prices; EUR by default
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
    /// Flights to show of each kind; 5 by default
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 20))]
    pub max_results: Option<u8>,
    /// Take everything that is not given here from the last search
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reuse_last_request: Option<bool>,
}

/// Constraints that a flight must meet, where the provider publishes the value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Constraints {
    /// Most taxes and fees of a flight for miles
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_taxes: Option<f64>,
    /// Currency of max_taxes; USD by default
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_taxes_currency: Option<String>,
    /// Only flights without a stop
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonstop_only: Option<bool>,
    /// Star Alliance, oneworld, SkyTeam
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alliances: Option<Vec<String>>,
}

impl Args {
    /// The arguments, completed from the session state, then from the defaults of the assistant.
    pub(super) fn completed(self, state: &State, defaults: Option<&Value>) -> Self {
        let again = self.reuse_last_request.unwrap_or(false);
        let mut known = self.without_aliases().or_from(Self::stored(state.get(PENDING)));
        if again {
            known = known.or_from(Self::stored(state.get(LAST)));
        }
        known.reuse_last_request = None;
        known.or_from_preferences(state.get("preferences")).or_from(Self::stored(defaults))
    }

    /// Resolves aliases. An empty text counts as absent.
    fn without_aliases(mut self) -> Self {
        for text in [&mut self.origin, &mut self.destination, &mut self.depart_date, &mut self.return_date, &mut self.currency] {
            *text = text.take().filter(|text| !text.trim().is_empty());
        }
        if let Some(constraints) = &mut self.constraints {
            constraints.max_taxes_currency = constraints.max_taxes_currency.take().filter(|text| !text.trim().is_empty());
        }
        self.award_only = self.award_only.or(self.use_miles.take());
        // As the seed does: a model that writes -1 or 7 means none or many.
        self.flexibility = self.flexibility.map(|days| days.clamp(0, MAX_FLEXIBILITY));
        if let Some(non_stop) = self.non_stop.take() {
            self.constraints.get_or_insert_default().nonstop_only.get_or_insert(non_stop);
        }
        self
    }

    /// Takes absent fields from `base`.
    fn or_from(self, base: Self) -> Self {
        let constraints = match (self.constraints, base.constraints) {
            (Some(own), Some(other)) => Some(Constraints {
                max_taxes: own.max_taxes.or(other.max_taxes),
                max_taxes_currency: own.max_taxes_currency.or(other.max_taxes_currency),
                nonstop_only: own.nonstop_only.or(other.nonstop_only),
                alliances: own.alliances.or(other.alliances),
            }),
            (own, other) => own.or(other),
        };
        Self {
            origin: self.origin.or(base.origin),
            destination: self.destination.or(base.destination),
            depart_date: self.depart_date.or(base.depart_date),
            return_date: self.return_date.or(base.return_date),
            pax: self.pax.or(base.pax),
            children: self.children.or(base.children),
            infants: self.infants.or(base.infants),
            cabin: self.cabin.or(base.cabin),
            award_only: self.award_only.or(base.award_only),
            use_miles: None,
            loyalty_programs: self.loyalty_programs.or(base.loyalty_programs),
            constraints,
            non_stop: None,
            flexibility: self.flexibility.or(base.flexibility),
            currency: self.currency.or(base.currency),
            max_results: self.max_results.or(base.max_results),
            reuse_last_request: self.reuse_last_request,
        }
    }

    /// Clients can write the session state, so each valid field is taken and every other field is ignored.
    fn stored(value: Option<&Value>) -> Self {
        let fields = value.and_then(Value::as_object);
        let one = |(name, value): (&String, &Value)| {
            let alone = Map::from_iter([(name.clone(), value.clone())]);
            serde_json::from_value::<Self>(Value::Object(alone)).ok()
        };
        fields.into_iter().flatten().filter_map(one).fold(Self::default(), |known, field| known.or_from(field.without_aliases()))
    }

    fn or_from_preferences(mut self, preferences: Option<&Value>) -> Self {
        let Some(preferences) = preferences.and_then(Value::as_object) else { return self };
        let field = |names: &[&str]| names.iter().find_map(|name| preferences.get(*name));
        if self.origin.is_none() {
            let home = field(&["home_airport", "home", "origin"]).and_then(Value::as_str).and_then(airports::read);
            // A flight to the home airport does not start there.
            self.origin = home.filter(|home| self.destination.as_deref().and_then(airports::read).as_ref() != Some(home));
        }
        if self.cabin.is_none() {
            self.cabin = field(&["cabin"]).and_then(Value::as_str).and_then(Cabin::read);
        }
        if self.loyalty_programs.is_none() {
            let list = field(&["programs", "loyalty_programs"]).and_then(Value::as_array);
            let names: Option<Vec<String>> = list.map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect());
            self.loyalty_programs = names.filter(|names| !names.is_empty());
        }
        self
    }

    /// The missing arguments, in the order in which the tool asks for them.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        let fields = [
            ("origin", self.origin.is_none()),
            ("destination", self.destination.is_none()),
            ("depart_date", self.depart_date.is_none()),
            ("cabin", self.cabin.is_none()),
        ];
        fields.into_iter().filter_map(|(name, missing)| missing.then_some(name)).collect()
    }

    /// The arguments as JSON, for the session state and the result.
    pub(super) fn to_json(&self) -> Value {
        json!(self)
    }
}

#[cfg(test)]
#[path = "args_tests.rs"]
mod tests;
