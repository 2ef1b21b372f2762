# The texts of the module `knowledge` for users in German. All three files have the same keys and variables; a test compares them.

knowledge-none = Ich habe in unserer Wissensbasis nichts Passendes gefunden. Soll ich stattdessen das Web durchsuchen?
knowledge-none-at-all = Ich habe in unserer Wissensbasis nichts Passendes gefunden.
knowledge-found = { $count ->
    [one] Ich habe dazu eine Stelle gefunden:
   *[other] Ich habe dazu { $count } Stellen gefunden:
}

# What the offline planner can do with the tools.
search_knowledge_base-ability = Dokumente („Was steht in der Reiserichtlinie über Bahnfahrten?“)
