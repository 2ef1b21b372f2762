//! The scripted model server of the tests, and the published benchmark.

pub mod audit;
pub mod fake_model;
pub mod floor;
pub mod load;
pub mod scenario;
pub mod seed;
pub mod stage;

/// reqwest is built without a crypto provider. Loopback connections need none, but the builder of the client does.
pub fn install_tls() {
    // Fails if a provider is installed already, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
