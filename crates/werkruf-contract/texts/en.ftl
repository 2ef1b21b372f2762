# The texts for users in English; also used when another language lacks a text.

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
worktime-too-long = This span of time is too long. Please ask for a shorter one.
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
offline-thing-get_requests = requests (“Which requests are open?”)
offline-thing-get_todos = tasks (“My tasks for today”)
offline-thing-get_worktime = working time (“How long have I worked today?”)
offline-thing-get_cerebro_articles = articles (“Articles about emergencies”)
offline-thing-get_user_info = who you are (“Who am I?”)
offline-thing-create_request = new requests (“Create a request: repair the printer”)
offline-thing-search_flights = flights ("Find business flights from FRA to JFK on March 15")
offline-thing-select_itinerary = choosing a flight that was shown ("Take the second one")
offline-thing-search_knowledge_base = documents ("What does the travel policy say about trains?")
offline-thing-remember = remembering something ("Remember that I like aisle seats")

# Requests and tasks.
requests-found = { $count ->
    [one] One request{ $filter }:
   *[other] { $count } requests{ $filter }:
}
requests-none = No requests found{ $filter }.
request-created = Request no. { $id } “{ $title }” was created.
todos-found = { $count ->
    [one] One task{ $filter }:
   *[other] { $count } tasks{ $filter }:
}
todos-none = No tasks found{ $filter }.
filter-due-day = due { $day }
filter-due-span = due { $from } to { $to }
filter-user = person { $id }
filter-branch = branch { $id }
row-due = due { $day }
row-requester = from { $name }
row-responsible = responsible: { $name }
rows-more = There are more; the newest { $count } are shown.
status-open = open
status-in_progress = in progress
status-improval = in improvement
status-quality_control = in quality control
status-done = done
status-cancelled = cancelled

# Working time.
worktime-day = Working time on { $day }{ $filter }: { $total }
worktime-span = Working time from { $from } to { $to }{ $filter }: { $total }
worktime-none-day = No working time recorded on { $day }{ $filter }.
worktime-none-span = No working time recorded from { $from } to { $to }{ $filter }.
worktime-running = The clock is running.
worktime-stopped = The clock is not running.
worktime-line = { $day }, { $start } to { $end } ({ $total })
worktime-line-running = { $day }, since { $start } ({ $total }, running)
worktime-more = { $count ->
    [one] One more entry is not listed.
   *[other] { $count } more entries are not listed.
}
duration-minutes = { $minutes } min
duration-hours = { $hours } h
duration-hours-minutes = { $hours } h { $minutes } min

# Articles.
articles-found = { $count ->
    [one] One article{ $filter }:
   *[other] { $count } articles{ $filter }:
}
articles-none = No articles found{ $filter }.
articles-term = about “{ $term }”
articles-tags = tagged { $tags }
articles-more = There are more; { $count } are shown.

# People.
person-name = { $first } { $last } (no. { $id })
person-email = Email: { $email }
person-branch = Branch: { $branch }
person-roles = Roles: { $roles }
person-no-roles = No roles

knowledge-none = I found nothing about this in our knowledge base. Shall I search the web instead?
knowledge-none-at-all = I found nothing about this in our knowledge base.
knowledge-found = { $count ->
    [one] I found one passage about this:
   *[other] I found { $count } passages about this:
}

# Flights.
flights-miles = { $miles } miles + { $taxes }
flights-taxes-unknown = taxes unknown
flights-sandbox = This is sample data: no flight search is set up here, and these flights are made up.
flights-awards = Award flights { $from } → { $to } on { $day } ({ $cabin }):
flights-awards-return = Award flights back { $from } → { $to } on { $day } ({ $cabin }):
flights-cash = Flights for money { $from } → { $to } on { $day } ({ $cabin }):
flights-none = No flights found: { $from } → { $to } on { $day } ({ $cabin }).
flights-cabin-economy = economy
flights-cabin-premium_economy = premium economy
flights-cabin-business = business
flights-cabin-first = first
flights-nonstop = nonstop
flights-stops = { $count ->
    [one] 1 stop
   *[other] { $count } stops
}
flights-seats = { $count ->
    [one] 1 seat left
   *[other] { $count } seats left
}
flights-total = { $price } in all for { $count } travellers
flights-also = also sold as { $numbers }
flights-unchecked = the limit on taxes could not be checked
flights-missing-provider = { $provider } is missing from this answer: { $reason }.
flights-reason-quota = its quota is used up
flights-reason-credentials = its credentials are not accepted
flights-reason-timeout = no answer in time
flights-reason-upstream = the service is failing
flights-reason-bad_response = the service sent something unreadable
flights-reason-not_configured = not set up
flights-reason-award_only = not asked
flights-no-cash-source = No source of flights for money is set up.
flights-ask = To search flights I still need: { $missing }.
flights-ask-origin = the airport of departure
flights-ask-destination = the destination
flights-ask-depart_date = the date of departure
flights-ask-cabin = the cabin (economy, premium economy, business or first)
flights-unknown_airport = I do not know the airport "{ $place }". Please give an IATA code, such as FRA.
flights-same_airports = Departure and destination are the same ({ $place }).
flights-too_many_passengers = At most { $most } people with a seat can be searched for, and no more infants than adults.
flights-unknown_program = I do not know the loyalty program "{ $program }". Known are: { $known }.
flights-unknown_currency = I do not know the currency "{ $currency }". Please give a code of three letters, such as EUR or USD.
flights-date_in_past = { $day } is in the past.
flights-date_too_far = { $day } is too far ahead; flights are on sale up to 361 days in advance.
flights-return_before_departure = The return flight is before the outbound flight.
flights-invalid = { $field } cannot be used as it is.
flights-selected = Selected: { $flight }
flights-none-shown = No flight has been shown yet that could be selected.
flights-no-such = { $count ->
    [one] One flight was shown; please choose 1.
   *[other] { $count } flights were shown; please choose one of them.
}
remembered = Noted: { $content }

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
