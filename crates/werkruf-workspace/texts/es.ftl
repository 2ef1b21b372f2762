# The texts of the module `workspace` for users in Spanish. All three files have the same keys and variables; a test compares them.

# Requests and tasks.
requests-found = { $count ->
    [one] Una solicitud{ $filter }:
   *[other] { $count } solicitudes{ $filter }:
}
requests-none = No se encontraron solicitudes{ $filter }.
request-created = La solicitud n.º { $id } «{ $title }» fue creada.
todos-found = { $count ->
    [one] Una tarea{ $filter }:
   *[other] { $count } tareas{ $filter }:
}
todos-none = No se encontraron tareas{ $filter }.
filter-due-day = vence el { $day }
filter-due-span = vence del { $from } al { $to }
filter-user = persona { $id }
filter-branch = sucursal { $id }
row-due = vence el { $day }
row-requester = de { $name }
row-responsible = responsable: { $name }
rows-more = Hay más; se muestran las { $count } más recientes.
status-open = abierta
status-in_progress = en curso
status-improval = en mejora
status-quality_control = en control de calidad
status-done = hecha
status-cancelled = cancelada

# Working time.
worktime-day = Tiempo de trabajo del { $day }{ $filter }: { $total }
worktime-span = Tiempo de trabajo del { $from } al { $to }{ $filter }: { $total }
worktime-none-day = No hay tiempo de trabajo registrado el { $day }{ $filter }.
worktime-none-span = No hay tiempo de trabajo registrado del { $from } al { $to }{ $filter }.
worktime-running = El registro está en marcha.
worktime-stopped = El registro no está en marcha.
worktime-line = { $day }, de { $start } a { $end } ({ $total })
worktime-line-running = { $day }, desde { $start } ({ $total }, en marcha)
worktime-more = { $count ->
    [one] Hay una entrada más que no se detalla.
   *[other] Hay { $count } entradas más que no se detallan.
}
worktime-too-long = Ese periodo es demasiado largo. Pregunta por uno más corto.

# Articles.
articles-found = { $count ->
    [one] Un artículo{ $filter }:
   *[other] { $count } artículos{ $filter }:
}
articles-none = No se encontraron artículos{ $filter }.
articles-term = sobre «{ $term }»
articles-tags = con las etiquetas { $tags }
articles-more = Hay más; se muestran { $count }.

# People.
person-name = { $first } { $last } (n.º { $id })
person-email = Correo: { $email }
person-branch = Sucursal: { $branch }
person-roles = Roles: { $roles }
person-no-roles = Sin roles

# What the offline planner can do with the tools.
get_requests-ability = solicitudes («¿Qué solicitudes hay abiertas?»)
get_todos-ability = tareas («Mis tareas de hoy»)
get_worktime-ability = horas de trabajo («¿Cuánto he trabajado hoy?»)
get_cerebro_articles-ability = artículos («Artículos sobre emergencias»)
get_user_info-ability = tus datos («¿Quién soy?»)
create_request-ability = nuevas solicitudes («Crea una solicitud: reparar la impresora»)
