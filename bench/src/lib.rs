//! The fake model server the tests script, and the published benchmark.

pub mod audit;
pub mod fake_model;
pub mod floor;
pub mod load;
pub mod scenario;
pub mod seed;
pub mod stage;

/// reqwest is built without a crypto provider; loopback never needs one, but its builder does.
pub fn install_tls() {
    // A second call finds the provider in place.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
