//! A config file that was only found in the working directory may not send a secret of the server itself anywhere: whoever can put a file
//! there could otherwise read the operator's keys. `--config ./werkruf.toml` says that the operator means this file.

use super::Flags;
use super::environment::{Environment, Variable};
use super::file::Document;
use super::violation::ConfigViolation;

/// Finds the values of an unnamed file that would receive a secret.
pub(super) fn check(document: &Document, flags: &Flags, environment: &Environment, violations: &mut Vec<ConfigViolation>) {
    if document.path.is_none() || flags.config.is_some() {
        return;
    }
    let is_set = |variable: Variable| environment.get(variable).is_some();
    let mut refuse = |place: &str, variable: &str| {
        let message = format!(
            "this file was found in the working directory and would receive {variable}; if you mean this file, say so with `--config ./werkruf.toml`"
        );
        violations.push(document.violation(place, message).with_code(ConfigViolation::CONFIG_NOT_NAMED));
    };
    let file = &document.file;
    let keys = [Variable::OPENAI_API_KEY, Variable::OPENAI_EMBEDDING_API_KEY];
    if file.model.base_url.is_some()
        && !is_set(Variable::OPENAI_BASE_URL)
        && let Some(key) = keys.into_iter().find(|key| is_set(*key))
    {
        refuse("/model/base_url", key.name());
    }
    let own = Variable::OPENAI_EMBEDDING_API_KEY;
    if file.embedding.base_url.is_some() && !is_set(Variable::OPENAI_EMBEDDING_BASE_URL) && is_set(own) {
        refuse("/embedding/base_url", own.name());
    }
    if file.whatsapp.base_url.is_some() && !is_set(Variable::WHATSAPP_BASE_URL) && is_set(Variable::WHATSAPP_ACCESS_TOKEN) {
        refuse("/whatsapp/base_url", Variable::WHATSAPP_ACCESS_TOKEN.name());
    }
    for (at, number) in file.whatsapp.numbers.iter().enumerate() {
        let [token, ..] = number.variables();
        let foreign = Variable::SECRETS.iter().map(|secret| secret.name()).filter(|name| *name != Variable::WHATSAPP_ACCESS_TOKEN.name());
        if let Some(secret) = foreign.into_iter().find(|name| *name == token) {
            refuse(&format!("/whatsapp/numbers/{at}/access_token_env"), secret);
        }
    }
    let of_model = file.model.headers.iter().map(|(name, text)| (format!("/model/headers/{name}"), text.as_str()));
    let of_tools = file
        .tools
        .iter()
        .enumerate()
        .flat_map(|(at, tool)| tool.texts_with_variables().into_iter().map(move |(place, text)| (format!("/tools/{at}{place}"), text)));
    for (place, text) in of_model.chain(of_tools) {
        if let Some(secret) = Variable::SECRETS
            .into_iter()
            .chain([Variable::WERKRUF_DATABASE])
            .find(|secret| text.contains(&format!("${{{}}}", secret.name())))
        {
            refuse(&place, secret.name());
        }
    }
    // A program runs as the server does, and could read all of its secrets.
    for (at, _) in file.tools.iter().enumerate().filter(|(_, tool)| tool.command.is_some()) {
        let message = "this file was found in the working directory and would start a program; if you mean this file, say so with `--config ./werkruf.toml`";
        violations.push(document.violation(&format!("/tools/{at}/command"), message).with_code(ConfigViolation::CONFIG_NOT_NAMED));
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::merge::merge;
    use super::{ConfigViolation, Document, Environment, Flags};

    const TOOL: &str = "[[tools]]\nname = 't'\ndescription = 'd'\nurl = 'http://127.0.0.1:1/'\neffect = 'read'\npermission = 'none'\n\
        parameters = '{\"type\": \"object\"}'\nheaders = { X = 'Bearer ${OPENAI_API_KEY}' }\n";

    fn refused(text: &str, config: Option<&str>, variables: &[(&str, &str)]) -> Vec<String> {
        let mut violations = Vec::new();
        let document = Document::parse(PathBuf::from("werkruf.toml"), text, &mut violations);
        let flags = Flags { config: config.map(PathBuf::from), ..Flags::default() };
        merge(&document, &flags, &Environment::of(variables.iter().copied()), &mut violations);
        violations.into_iter().filter(|found| found.code == Some(ConfigViolation::CONFIG_NOT_NAMED)).map(|found| found.path).collect()
    }

    #[test]
    fn a_file_that_nobody_named_gets_no_key_of_the_environment() {
        let (model, embedding) = ("[model]\nbase_url = 'http://192.0.2.1/v1'\n", "[embedding]\nbase_url = 'http://192.0.2.1/v1'\n");
        let key = ("OPENAI_API_KEY", "sk-1");
        assert_eq!(refused(model, None, &[key]), ["/model/base_url"]);
        assert_eq!(refused(model, None, &[("OPENAI_EMBEDDING_API_KEY", "sk-2")]), ["/model/base_url"], "embeddings go there too");
        assert_eq!(refused(embedding, None, &[("OPENAI_EMBEDDING_API_KEY", "sk-2")]), ["/embedding/base_url"]);
        let header = "[model]\nbase_url = 'http://192.0.2.1/v1'\nheaders = { X = '${WERKRUF_ADMIN_KEY}' }\n";
        assert_eq!(refused(header, None, &[("WERKRUF_ADMIN_KEY", "0123456789abcdef")]), ["/model/headers/X"]);
        assert_eq!(refused(TOOL, None, &[key]), ["/tools/0/headers/X"]);
        let program = "[[tools]]\nkind = 'mcp'\nname = 'p'\ncommand = 'sh'\nenv = { K = '${OPENAI_API_KEY}' }\npermission = 'none'\n";
        assert_eq!(refused(program, None, &[]), ["/tools/0/env/K", "/tools/0/command"]);
        assert_eq!(refused(program, Some("./werkruf.toml"), &[key]), Vec::<String>::new());
        let graph = "[whatsapp]\nbase_url = 'http://192.0.2.1'\n";
        assert_eq!(refused(graph, None, &[("WHATSAPP_ACCESS_TOKEN", "t")]), ["/whatsapp/base_url"]);
        let number = "[[whatsapp.numbers]]\nphone_number_id = '1'\ntenant = 'demo'\naccess_token_env = 'OPENAI_API_KEY'\n";
        assert_eq!(refused(number, None, &[key]), ["/whatsapp/numbers/0/access_token_env"]);

        let none = Vec::<String>::new();
        assert_eq!(refused(model, Some("./werkruf.toml"), &[key]), none, "named");
        assert_eq!(refused(model, None, &[]), none, "no key");
        assert_eq!(refused(model, None, &[key, ("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")]), none, "the environment names the server");
        assert_eq!(refused("", None, &[key]), none, "no address");
        assert_eq!(refused(embedding, None, &[key]), none, "the key of one server is never sent to another");
    }
}
