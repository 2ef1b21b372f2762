//! The Responses door.

mod answers;
mod client_tools;
mod kept;
mod requests;
mod resumed;
mod talk;
