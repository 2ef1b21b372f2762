# The texts of the module `workspace` for users in English; also used when another language lacks a text.

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
worktime-too-long = This span of time is too long. Please ask for a shorter one.

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

# What the offline planner can do with the tools.
get_requests-ability = requests (“Which requests are open?”)
get_todos-ability = tasks (“My tasks for today”)
get_worktime-ability = working time (“How long have I worked today?”)
get_cerebro_articles-ability = articles (“Articles about emergencies”)
get_user_info-ability = who you are (“Who am I?”)
create_request-ability = new requests (“Create a request: repair the printer”)
