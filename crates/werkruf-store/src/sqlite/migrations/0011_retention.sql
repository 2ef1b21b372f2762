-- The tenant first, as in the reference to turns: without it, deleting a turn looked through all calls of the tenant. No index more.
DROP INDEX tool_calls_by_place;
CREATE UNIQUE INDEX tool_calls_by_place ON tool_calls (tenant_id, turn_id, step, output_index);
