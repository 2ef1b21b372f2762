//! What exists in every opened store: the tenants that the configuration names, and the sample data where it is wanted.

use jiff::Timestamp;
use werkruf_contract::{Clock, Uuid};
use werkruf_store::{People, Store, StoreError};

use crate::app::StartError;
use crate::config::{Config, ConfigViolation};
use crate::sample;
use crate::whatsapp::WhatsAppSettings;

/// Keys of the store's settings table that describe the installation.
const INSTALLED_AT: &str = "installed_at";
const SAMPLE_DATA: &str = "sample_data";

/// Makes the tenants, and writes the sample data once if the configuration wants it. Without a setting, a new installation on loopback
/// without a config file gets the sample data.
pub(crate) async fn initialize(config: &Config, store: &dyn Store, clock: &Clock, now: Timestamp) -> Result<(), StartError> {
    store.ensure_tenant(sample::DEMO_ID, sample::DEMO.to_owned(), now).await?;
    let unknown = ensure_tenants(&config.whatsapp, store, clock).await?;
    if !unknown.is_empty() {
        return Err(StartError::Config(unknown));
    }
    let new = store.setting(INSTALLED_AT.to_owned()).await?.is_none();
    let by_default = new && config.listen.ip().is_loopback() && config.file.is_none();
    let with_sample = config.sample_data.unwrap_or(by_default);
    if with_sample && store.setting(SAMPLE_DATA.to_owned()).await?.is_none() {
        sample::write(store, now).await?;
        store.put_setting(SAMPLE_DATA.to_owned(), now.to_string()).await?;
    }
    if new {
        store.put_setting(INSTALLED_AT.to_owned(), now.to_string()).await?;
    }
    Ok(())
}

/// Makes the tenants that numbers name by a slug. A tenant named by an id must exist; those that do not are returned.
pub(crate) async fn ensure_tenants(
    settings: &WhatsAppSettings,
    store: &(impl People + ?Sized),
    clock: &Clock,
) -> Result<Vec<ConfigViolation>, StoreError> {
    let mut unknown = Vec::new();
    for (at, number) in settings.numbers.iter().enumerate() {
        if store.tenant(number.tenant.clone()).await?.is_some() {
            continue;
        }
        if Uuid::try_parse(&number.tenant).is_ok() {
            let message = format!("there is no tenant with the id {}; a new tenant is named by its slug", number.tenant);
            unknown.push(ConfigViolation::new(format!("/whatsapp/numbers/{at}/tenant"), message));
        } else {
            store.ensure_tenant(clock.new_id(), number.tenant.clone(), clock.now()).await?;
        }
    }
    Ok(unknown)
}
