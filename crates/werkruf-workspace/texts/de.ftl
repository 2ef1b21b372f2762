# The texts of the module `workspace` for users in German. All three files have the same keys and variables; a test compares them.

# Requests and tasks.
requests-found = { $count ->
    [one] Eine Anfrage{ $filter }:
   *[other] { $count } Anfragen{ $filter }:
}
requests-none = Keine Anfragen gefunden{ $filter }.
request-created = Anfrage Nr. { $id } „{ $title }“ wurde angelegt.
todos-found = { $count ->
    [one] Eine Aufgabe{ $filter }:
   *[other] { $count } Aufgaben{ $filter }:
}
todos-none = Keine Aufgaben gefunden{ $filter }.
filter-due-day = fällig am { $day }
filter-due-span = fällig vom { $from } bis { $to }
filter-user = Person { $id }
filter-branch = Standort { $id }
row-due = fällig { $day }
row-requester = von { $name }
row-responsible = zuständig: { $name }
rows-more = Es gibt noch mehr; gezeigt sind die neuesten { $count }.
status-open = offen
status-in_progress = in Arbeit
status-improval = in Nachbesserung
status-quality_control = in der Qualitätskontrolle
status-done = erledigt
status-cancelled = storniert

# Working time.
worktime-day = Arbeitszeit am { $day }{ $filter }: { $total }
worktime-span = Arbeitszeit vom { $from } bis { $to }{ $filter }: { $total }
worktime-none-day = Keine Arbeitszeit erfasst am { $day }{ $filter }.
worktime-none-span = Keine Arbeitszeit erfasst vom { $from } bis { $to }{ $filter }.
worktime-running = Die Zeiterfassung läuft gerade.
worktime-stopped = Die Zeiterfassung läuft gerade nicht.
worktime-line = { $day }, { $start } bis { $end } ({ $total })
worktime-line-running = { $day }, seit { $start } ({ $total }, läuft)
worktime-more = { $count ->
    [one] Ein weiterer Eintrag ist nicht einzeln aufgeführt.
   *[other] { $count } weitere Einträge sind nicht einzeln aufgeführt.
}
worktime-too-long = Dieser Zeitraum ist zu lang. Frag bitte nach einem kürzeren.

# Articles.
articles-found = { $count ->
    [one] Ein Artikel{ $filter }:
   *[other] { $count } Artikel{ $filter }:
}
articles-none = Keine Artikel gefunden{ $filter }.
articles-term = zu „{ $term }“
articles-tags = mit den Schlagwörtern { $tags }
articles-more = Es gibt noch mehr; gezeigt sind { $count }.

# People.
person-name = { $first } { $last } (Nr. { $id })
person-email = E-Mail: { $email }
person-branch = Standort: { $branch }
person-roles = Rollen: { $roles }
person-no-roles = Keine Rollen

# What the offline planner can do with the tools.
get_requests-ability = Anfragen („Welche Anfragen sind offen?“)
get_todos-ability = Aufgaben („Meine Aufgaben für heute“)
get_worktime-ability = Arbeitszeit („Wie lange habe ich heute gearbeitet?“)
get_cerebro_articles-ability = Artikel („Artikel zu Notfällen“)
get_user_info-ability = deine Angaben („Wer bin ich?“)
create_request-ability = neue Anfragen („Erstelle eine Anfrage: Drucker reparieren“)
