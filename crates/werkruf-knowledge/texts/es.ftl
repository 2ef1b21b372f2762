# The texts of the module `knowledge` for users in Spanish. All three files have the same keys and variables; a test compares them.

knowledge-none = No he encontrado nada sobre esto en nuestra base de conocimientos. ¿Busco en la web en su lugar?
knowledge-none-at-all = No he encontrado nada sobre esto en nuestra base de conocimientos.
knowledge-found = { $count ->
    [one] He encontrado un pasaje sobre esto:
   *[other] He encontrado { $count } pasajes sobre esto:
}

# What the offline planner can do with the tools.
search_knowledge_base-ability = documentos («¿Qué dice la política de viajes sobre los trenes?»)
