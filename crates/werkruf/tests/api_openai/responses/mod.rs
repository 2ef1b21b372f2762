//! The Responses endpoints.

mod answers;
mod client;
mod client_tools;
mod requests;
mod resumed;
mod stored;
