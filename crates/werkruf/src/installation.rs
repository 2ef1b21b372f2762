//! What exists in every opened store: the tenants that the configuration names, and the sample data where it is wanted.

use jiff::Timestamp;
use werkruf_contract::{Clock, Uuid};
use werkruf_runtime::{Assistant, Assistants, Runtime};
use werkruf_store::{AdministrationStore, Installation, StoreError, TenantRow};

use crate::config::{BudgetConfig, Config, ConfigViolation};
use crate::sample;
use crate::start_error::StartError;
use crate::whatsapp::{CHANNEL, WhatsAppSettings};

/// Keys of the store's settings table that describe the installation.
const INSTALLED_AT: &str = "installed_at";
const SAMPLE_DATA: &str = "sample_data";

/// Makes tenant `demo`, and writes the sample data once if the configuration wants it. Without a setting, a new installation on loopback
/// without a config file gets the sample data.
pub(crate) async fn initialize(config: &Config, store: &dyn AdministrationStore, now: Timestamp) -> Result<(), StartError> {
    store.ensure_tenant(sample::DEMO_ID, sample::DEMO.to_owned(), now).await?;
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

/// Finds the tenants of numbers. A tenant named by a slug is made; one named by an id must exist, and each has the assistant of its number.
pub(crate) async fn resolve_tenants(
    mut settings: WhatsAppSettings,
    assistants: &[Assistant],
    installation: &(impl Installation + ?Sized),
    clock: &Clock,
) -> Result<WhatsAppSettings, Vec<ConfigViolation>> {
    let mut violations = Vec::new();
    let assistants = Assistants::new(assistants.to_vec());
    for number in &mut settings.numbers {
        match named_tenant(&number.tenant, installation, clock).await {
            Ok(TenantRow { id, slug }) => {
                number.tenant_id = id;
                let name = &number.assistant;
                if !assistants.find(name, &[&slug, &id.to_string()]).is_some_and(|assistant| assistant.serves(CHANNEL)) {
                    let message = format!("the tenant {slug} has no assistant named `{name}` that speaks on `{CHANNEL}`; correct the name");
                    violations.push(ConfigViolation::new(number.place_of("assistant"), message));
                }
            }
            Err(message) => violations.push(ConfigViolation::new(number.place_of("tenant"), message)),
        }
    }
    if violations.is_empty() { Ok(settings) } else { Err(violations) }
}

/// Makes the configured budgets those of this configuration. Only a server does that: a command may have another configuration.
pub(crate) async fn put_budgets(
    configured: &[BudgetConfig],
    store: &dyn AdministrationStore,
    runtime: &Runtime,
    clock: &Clock,
) -> Result<(), Vec<ConfigViolation>> {
    let mut budgets = Vec::new();
    for (at, budget) in configured.iter().enumerate() {
        let tenant = named_tenant(&budget.tenant, store, clock).await;
        let tenant = tenant.map_err(|message| vec![ConfigViolation::new(format!("/budgets/{at}/tenant"), message)])?;
        budgets.push(budget.budget(clock.new_id(), tenant.id, true, clock.now()));
    }
    let unstored = |error: StoreError| vec![ConfigViolation::new("/budgets", error.to_string())];
    store.put_configured_budgets(budgets, clock.now()).await.map_err(unstored)?;
    runtime.refresh_budgets().await.map_err(unstored)
}

/// The tenant that the configuration names. One that is named by a slug is made.
async fn named_tenant(name: &str, installation: &(impl Installation + ?Sized), clock: &Clock) -> Result<TenantRow, String> {
    if let Some(found) = installation.tenant(name.to_owned()).await.map_err(|error| error.to_string())? {
        return Ok(found);
    }
    if Uuid::try_parse(name).is_ok() {
        return Err(format!("there is no tenant with the id {name}; a new tenant is named by its slug"));
    }
    installation.ensure_tenant(clock.new_id(), name.to_owned(), clock.now()).await.map_err(|error| error.to_string())
}
