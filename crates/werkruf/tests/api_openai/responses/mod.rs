//! The Responses endpoints.

mod answers;
pub mod client;
mod client_tools;
mod requests;
mod resumed;
mod stored;
