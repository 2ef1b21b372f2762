-- Nothing is found by it: which ids of a conversation are taken, its messages say.
DROP INDEX tool_calls_by_wire_id;
