# The texts of the kernel for users in English; also used when another language lacks a text.

# Errors of turns, by error code.
error-step_limit = The assistant needed more steps than are allowed and found no answer.
error-repeat_limit = The assistant repeated itself and found no answer.
error-turn_deadline = The time for this answer is up.
error-canceled = The turn was canceled.
error-model_incomplete = The language model broke off before its answer was complete.
error-model_cut = The language model's answer was cut off before its tool calls were complete.
error-model_busy = The language model is taking no more requests right now.
error-model_refused = The language model refused the request.
error-context_length_exceeded = This conversation is longer than the language model can read.
error-invalid_image = The language model cannot use a picture of this message.
error-model_not_found = The server of the language model does not know the model.
error-model_credentials = The language model does not accept this server's key.
error-model_unreachable = The language model cannot be reached.
error-model_unreadable = The server of the language model did not answer like a language model.
error-model_unavailable = The language model does not answer.
error-unknown_user = The person this message came from is no longer known.
error-poison = This message made the server stop several times and is not tried again.
error-too_many_turns = You have sent very many messages just now. Please wait a minute and then write again.
error-budget_exceeded = The budget for this is used up. Please try again after { $until }.
error-budget_tokens = This request does not allow enough tokens for an answer.
error-price_unknown = The language model has no price here, so a budget in money cannot count it.

# Errors of calls, by error code, used when the tool gives no message of its own.
call-permission_denied = You are not permitted to see this.
call-invalid_arguments = This could not be looked up: { $reason }
call-unknown_user = There is no person with this number.
call-needs_connection = Connect your account with the server of this function first.
call-unknown_tool = This function is not available here.
call-tool_timeout = Looking this up took too long. Please try again in a moment.
call-canceled = Looking this up was canceled.
call-outcome_unknown = It is not known whether this was carried out. Please check the result before you repeat it.
call-approval_denied = This was not approved.
call-approval_expired = The approval did not come in time.
call-interrupted = Looking this up was interrupted; its result is not known.
call-approval_pending = This waits for a person's approval.
call-provider_call_not_run = This was not carried out: the model's provider did not run it.
call-tainted = This is not done in a conversation that holds content from strangers.
call-response_too_large = The answer was too large. Please ask for less.
state-not-stored = Nothing of this could be kept in this conversation, because its stored state is full. The call itself was carried out.
call-tool_panicked = The tool broke while it ran. The operator has been told.
call-other = This did not work just now ({ $code }).
call-done = Done. The tool { $tool } answered without a text.
openai-approval = The tool { $tool } waits for a person's approval ({ $id }). Once it is decided, this conversation goes on.

# The offline planner, which is not a language model.
offline-notice = (This is the offline planner answering, not a language model.)
offline-lost = I did not understand that. I am not a language model but a simple planner.
offline-can = I can look up: { $things }.
offline-can-nothing = I was given no tool that I could use here.
offline-connect = To ask freely, connect a language model with OPENAI_API_KEY or OPENAI_BASE_URL.
offline-no-format = I am a simple planner and not a language model, so I cannot answer in a given JSON format.

# Durations.
duration-minutes = { $minutes } min
duration-hours = { $hours } h
duration-hours-minutes = { $hours } h { $minutes } min

# The tool `remember`.
remembered = Noted: { $content }
remember-ability = remembering something ("Remember that I like aisle seats")

# Texts on channels such as WhatsApp.
channel-waits = This needs an approval by { $roles }: { $tool }. You get an answer here as soon as it is decided.
channel-approval = { $name } asks for: { $tool }
channel-approval-cut = … and { $missing } more characters. Read everything before you decide: approval { $id } in `werkruf approvals list --json`.
channel-approve = Approve
channel-deny = Deny
channel-approved = { $name } approved: { $tool }
channel-denied = { $name } denied: { $tool }

# WhatsApp.
whatsapp-unknown-sender = This number is not known here, so I cannot help. Please have your phone number entered by your administrator.
whatsapp-unreadable = I cannot read this here, sorry. Please write to me in words.
whatsapp-approval-approved = Approved: { $tool }
whatsapp-approval-denied = Denied: { $tool }
whatsapp-approval-late = This was decided before, or the time for it is over.
whatsapp-approval-four-eyes = Whoever asks for something cannot approve it. Another person has to.
whatsapp-approval-unknown = This button belongs to no approval that you can decide.

# The connection of a person with a server that has accounts of people.
connect-link = Connect your account with { $server } first: { $url } (the link works once, for ten minutes, and only for you)
connect-title = Connect an account
connect-ask = The tools of { $server } ({ $host }) will be able to use the account that you choose next, in the name of { $person }.
connect-warning = Go on only if you are { $person } and asked for this yourself.
connect-go = Continue to the login
connect-done = The account is connected with { $server }. You can close this page.
connect-gone = This link was used already, has expired, or was opened in another browser. Ask for a new one.
connect-busy = The login is being prepared already, perhaps in another tab. Please try again in a moment.
connect-declined = The account was not connected, because the login was not confirmed.
connect-failed = The account could not be connected: the other server did not answer as it should. Please try again later.
connect-unready = The account could not be connected: this server lacks a setting. Please tell its operator.
