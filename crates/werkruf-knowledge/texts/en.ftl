# The texts of the module `knowledge` for users in English; also used when another language lacks a text.

knowledge-none = I found nothing about this in our knowledge base. Shall I search the web instead?
knowledge-none-at-all = I found nothing about this in our knowledge base.
knowledge-found = { $count ->
    [one] I found one passage about this:
   *[other] I found { $count } passages about this:
}

# What the offline planner can do with the tools.
search_knowledge_base-ability = documents ("What does the travel policy say about trains?")
