-- Row-level security and grants for every table of the schema; runs after the migrations, so that no table is forgotten. A transaction of
-- werkruf_app reads and writes the rows of its tenant only, and none without a tenant; forced, so that it holds for the owner of the
-- tables too.
DO $$
DECLARE
  our_schema text := current_schema();
  found record;
BEGIN
  EXECUTE format('GRANT USAGE ON SCHEMA %I TO werkruf_app, werkruf_system, werkruf_operator', our_schema);
  EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %I TO werkruf_system', our_schema);
  EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA %I TO werkruf_operator', our_schema);
  -- pg_dump reads sequences too.
  EXECUTE format('GRANT SELECT ON ALL SEQUENCES IN SCHEMA %I TO werkruf_operator', our_schema);
  EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON %I.schema_migrations FROM werkruf_system', our_schema);
  FOR found IN
    SELECT class.relname AS name, class.relkind AS kind, class.relname = 'tenants' AS is_tenants FROM pg_class AS class
    WHERE class.relnamespace = our_schema::regnamespace AND class.relkind IN ('r', 'p', 'v')
      AND EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = class.oid AND attname = 'tenant_id' AND NOT attisdropped)
  LOOP
    IF found.kind = 'v' OR found.is_tenants THEN
      EXECUTE format('GRANT SELECT ON %I.%I TO werkruf_app', our_schema, found.name);
      IF found.is_tenants THEN
        -- Writes of people lock the row of their tenant, and PostgreSQL asks for the right to change a column of it.
        EXECUTE format('GRANT UPDATE (created_at) ON %I.%I TO werkruf_app', our_schema, found.name);
      END IF;
    ELSE
      EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I.%I TO werkruf_app', our_schema, found.name);
    END IF;
    -- Entries of the audit log are only added; the head of a chain is moved, never removed.
    IF found.name = 'audit_entries' THEN
      EXECUTE format('REVOKE UPDATE, DELETE ON %I.%I FROM werkruf_app, werkruf_system', our_schema, found.name);
    ELSIF found.name = 'audit_heads' THEN
      EXECUTE format('REVOKE DELETE ON %I.%I FROM werkruf_app, werkruf_system', our_schema, found.name);
    END IF;
    CONTINUE WHEN found.kind = 'v';
    EXECUTE format('ALTER TABLE %I.%I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', our_schema, found.name);
    CONTINUE WHEN EXISTS (SELECT 1 FROM pg_policies WHERE schemaname = our_schema AND tablename = found.name AND policyname = 'own_tenant');
    EXECUTE format(
      'CREATE POLICY own_tenant ON %I.%I TO werkruf_app
         USING (tenant_id = nullif(current_setting(''werkruf.tenant'', true), '''')::uuid)
         WITH CHECK (tenant_id = nullif(current_setting(''werkruf.tenant'', true), '''')::uuid)', our_schema, found.name);
    -- Policies of a role apply to its members even without SET ROLE. The server's user is a member of all three roles, and must not read
    -- everything by that alone; a user who is a member of werkruf_operator only reads without SET ROLE.
    EXECUTE format('CREATE POLICY every_tenant ON %I.%I TO werkruf_system
         USING (current_user = ''werkruf_system'') WITH CHECK (current_user = ''werkruf_system'')', our_schema, found.name);
    EXECUTE format('CREATE POLICY read_every_tenant ON %I.%I FOR SELECT TO werkruf_operator
         USING (NOT pg_has_role(current_user, ''werkruf_app'', ''MEMBER''))', our_schema, found.name);
  END LOOP;
END
$$;
