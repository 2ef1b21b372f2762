//! The file that `werkruf init` writes. It switches all modules on, and every other setting is commented out: until it is edited, the server does
//! the same with it as without a file, except that approvals need a second person.

/// A commented `werkruf.toml` that is a valid configuration as written. It names the modules that are compiled in.
pub fn template() -> String {
    let is_compiled_in = |line: &&str| cfg!(feature = "flights") || !line.starts_with("[flights]");
    TEMPLATE.lines().filter(is_compiled_in).map(|line| format!("{line}\n")).collect()
}

const TEMPLATE: &str = r#"# werkruf.toml: the configuration of this server. Every key is explained in docs/configuration.md.
# An environment variable overrides this file, a flag overrides both.
# Secrets (OPENAI_API_KEY, WERKRUF_ADMIN_KEY, tokens of tools) belong in the environment, not into this file.
# [workspace], [flights], [knowledge] and [ask_gpt] switch modules on: without its section a module has no tools, routes or import lists.
# After a change: `werkruf config check`, then `kill -HUP` or a restart.

# listen = "127.0.0.1:8080"            # another address needs WERKRUF_ADMIN_KEY or an API key
# database = "sqlite:data/werkruf.db"  # relative to the working directory; or postgres://USER@HOST/DATABASE (its password in WERKRUF_DATABASE)
# public_url = "https://chat.example.org"
# trusted_proxies = ["10.0.0.0/8"]
# cors_origins = ["https://www.example.org"]
# sample_data = true                   # sample people in tenant `demo`
# disabled_tools = []
# # prices = "prices.json"             # overrides the built-in prices of models; `werkruf prices` shows the result

[workspace]                            # requests, tasks, working times and articles of the tenant's people

[flights]                              # search_flights, select_itinerary; the keys of providers come from the environment

[knowledge]                            # documents, search_knowledge_base
# reader_sandbox = "on"                # "off": read files also where the kernel has no Landlock

[ask_gpt]                              # asks the model without tools; offered when no document answers

# [tls]                                # HTTPS instead of plain HTTP; PEM files, read again when they change
# cert = "/etc/werkruf/cert.pem"       # the certificate and its chain
# key = "/etc/werkruf/key.pem"

# [postgres]                           # only if the database is postgres://…
# schema = "werkruf"
# connections = 12                     # maximum of this process
# poll_only = false                    # true behind a pooler in transaction mode

# [model]                              # the key comes from OPENAI_API_KEY
# base_url = "http://127.0.0.1:11434/v1"
# name = "qwen3:8b"
# api = "chat"                         # or "responses", the default at OpenAI
# headers = { "X-Team" = "support" }   # sent with every request; ${ENV_NAME} stands for a variable
# max_output_tokens = 16384
# offline = false                      # true: no language model, whatever the environment says

# [embedding]                          # vectors for knowledge search; without them the search is lexical only
# model = "text-embedding-3-small"     # the default at OpenAI
# base_url = "http://127.0.0.1:8090/v1"
# languages = ["de", "en", "es"]       # languages that the model supports

# [log]
# filter = "info"                      # or "werkruf=debug,info"
# format = "json"                      # text on a terminal, else json
# arguments = true                     # function calls are logged with their arguments, not only the names

# [metrics]                            # for Prometheus; docs/metrics.md lists them
# listen = "127.0.0.1:9464"            # /metrics without a key on an address of its own; without it: /metrics with the operator's key

# [approvals]
# four_eyes = true                     # whoever asked for a call cannot approve it
# provider_role = "admin"              # who approves calls that the model's provider runs itself

# [openai]
# on_disconnect = "cancel"             # a client that leaves a stream under /v1 cancels its turn; "finish": the turn goes on

# [alerts]                             # to the log, GET /api/alerts and the webhooks
# approval_waiting_minutes = 15        # an approval that nobody decided for so long
# disk_free_mib = 1024                 # left out: less than 1 GiB, or than 5 percent

# [auth]
# unknown_users = "refuse"             # "guest": make a user with the role below
# guest_role = "guest"
# key_max_age_days = 90                # every API key ends after so many days

# [retention]                          # rows without a setting are never deleted
# messages_days = 180
# events_days = 90                     # events contain the text of messages and calls
# calls_days = 180
# usage_days = 800                     # usage and cost per model call

# [auth.jwt]                           # users who sign in with another issuer; for Supabase set SUPABASE_URL instead
# issuer = "https://login.example.org"
# audience = "werkruf"
# tenant_claim = "tenant_id"
# roles_claim = "roles"
# unknown_roles = "deny"               # or "ignore"

# [limits]
# steps = 16                           # model answers per turn
# turn_ms = 300000
# tool_ms = 30000
# model_first_byte_ms = 60000
# model_idle_ms = 60000
# drain_ms = 30000
# lease_ttl_ms = 15000
# calls_per_step = 128
# parallel = 8
# turns_per_minute_user = 20           # 0 = off
# turns_per_minute_key = 600           # 0 = off
# requests_per_minute_user = 600       # 0 = off; a tenth may come at once
# requests_per_minute_key = 6000       # 0 = off
# model_concurrency = 0                # 0 = off
# queue = 10000
# state_bytes = 262144                 # session state of a conversation
# bytes_in_flight = 268435456          # memory of the requests in progress
# connections = 8192
# connections_per_address = 1024       # not for loopback and trusted_proxies

# [[assistants]]                       # one named "default" always exists
# name = "support"
# prompt = """
# You help {name} in {language}. Today is {date}. You may use:
# {functions}
# """
# # prompt_file = "support.md"         # instead of prompt; relative to this file
# tools = []                           # empty: all of them
# # model = "gpt-5"
# # temperature = 0.2
# # max_output_tokens = 2048
# channels = ["web"]
# # tenant = "demo"
# # context_tokens = 32000
# # compaction = "trim"
# # safety_mode = "strict"             # applies to every turn, beside the profile of the request
# # collections = ["handbook"]         # what its turns search
# # defaults = { search_flights = { award_only = true } }
# # taint = "approve"                  # off | approve | deny: calls with consequences after untrusted content

# [[tools]]                            # your own tool, one HTTP request per call
# name = "order_status"
# description = "Looks up the status of an order by its number."
# kind = "http"
# url = "http://127.0.0.1:9000/order-status"
# method = "POST"
# effect = "read"                      # read | idempotent | once
# timeout_ms = 10000
# attempts = 3
# # reuse_s = 60                       # left out: inside the turn; 0: each call of a read tool is sent
# # repeat_limit = 3                   # how often one turn may make the very same call
# permission = "none"                  # the right that a caller needs, such as "table_requests:table:read"
# # tenants = ["demo"]                 # only these tenants have the tool
# # trust = "untrusted"                # strangers may write what it returns
# # external = true                    # its arguments leave the company
# # price_usd = "0.01"                 # what one call costs; each attempt then has a usage row
# # headers = { Authorization = "Bearer ${ORDERS_TOKEN}" }
# # secret_env = "ORDERS_SIGNING_SECRET"
# # answer = "direct"
# parameters = '''
# {"type": "object", "properties": {"number": {"type": "string"}}, "required": ["number"]}
# '''

# [[webhooks]]                         # a program that is told about turns, by signed requests
# url = "https://crm.example.org/werkruf"
# events = ["approval_required", "turn_finished", "turn_failed", "outcome_unknown", "dead_letter"]
# secret_env = "CRM_WEBHOOK_SECRET"    # signs the requests; at least 16 characters
# #                                    # and the operator's alerts: budget_threshold, daily_overview, model_down, …
# # name = "crm"                       # the host of the url if it is left out
# # tenant = "demo"                    # only about this tenant

# [[budgets]]                          # what model requests may use; docs/budgets.md
# scope = "user"                       # tenant | user | key | assistant
# # subject = "3"                      # left out: each user has the budget for itself
# period = "day"                       # day | month, in UTC
# unit = "tokens"                      # tokens | nano_usd | model_calls
# limit = 500000
# # tenant = "demo"

# [egress]
# allow = ["10.0.0.0/8"]               # private networks that tools and webhooks may reach by a host name

# [whatsapp]                           # the channel WhatsApp; docs/whatsapp.md has the five steps
# # reconcile_s = 30                   # how long a doubtful message waits for a delivery report
# [[whatsapp.numbers]]
# phone_number_id = "106540352242922"
# tenant = "demo"
# branch_id = 1
# # access_token_env = "WHATSAPP_ACCESS_TOKEN"
# # app_secret_env = "WHATSAPP_APP_SECRET"
# # verify_token_env = "WHATSAPP_VERIFY_TOKEN"
# # template = "notice"                # sent when the person wrote nothing for 24 hours; one variable
# # approval_template = "approval"     # the same with two quick-reply buttons
# # template_language = "de"
# # assistant = "default"
# [whatsapp.keywords.de]               # whole messages that need no model
# "meine tickets" = "get_requests"

# [safety.strict]                      # chosen by a caller with X-Safety-Mode: strict
# tools_denied = ["order_status"]
# approval_required_for = []
"#;
