-- Row-level security and rights, for every table of the schema; runs at the end of every migration, so that no table is forgotten.
-- A table with a tenant shows an app's transaction that tenant's rows and no others, and without a tenant nothing; forced, so that it
-- holds for the owner of the tables too.
DO $$
DECLARE
  home text := current_schema();
  found record;
BEGIN
  EXECUTE format('GRANT USAGE ON SCHEMA %I TO werkruf_app, werkruf_system, werkruf_operator', home);
  EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %I TO werkruf_system', home);
  EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA %I TO werkruf_operator', home);
  -- A dump reads them too.
  EXECUTE format('GRANT SELECT ON ALL SEQUENCES IN SCHEMA %I TO werkruf_operator', home);
  EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON %I.schema_migrations FROM werkruf_system', home);
  FOR found IN
    SELECT class.relname AS name, class.relkind AS kind, class.relname = 'tenants' AS is_tenants FROM pg_class AS class
    WHERE class.relnamespace = home::regnamespace AND class.relkind IN ('r', 'p', 'v')
      AND EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = class.oid AND attname = 'tenant_id' AND NOT attisdropped)
  LOOP
    IF found.kind = 'v' OR found.is_tenants THEN
      EXECUTE format('GRANT SELECT ON %I.%I TO werkruf_app', home, found.name);
    ELSE
      EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I.%I TO werkruf_app', home, found.name);
    END IF;
    CONTINUE WHEN found.kind = 'v';
    EXECUTE format('ALTER TABLE %I.%I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', home, found.name);
    CONTINUE WHEN EXISTS (SELECT 1 FROM pg_policies WHERE schemaname = home AND tablename = found.name AND policyname = 'own_tenant');
    EXECUTE format(
      'CREATE POLICY own_tenant ON %I.%I TO werkruf_app
         USING (tenant_id = nullif(current_setting(''werkruf.tenant'', true), '''')::uuid)
         WITH CHECK (tenant_id = nullif(current_setting(''werkruf.tenant'', true), '''')::uuid)', home, found.name);
    -- A member of a role meets its policies even without taking the role. The server's user is a member of all three, and must not
    -- see everything by that alone; people who are members of werkruf_operator and nothing else read without ceremony.
    EXECUTE format('CREATE POLICY every_tenant ON %I.%I TO werkruf_system
         USING (current_user = ''werkruf_system'') WITH CHECK (current_user = ''werkruf_system'')', home, found.name);
    EXECUTE format('CREATE POLICY read_every_tenant ON %I.%I FOR SELECT TO werkruf_operator
         USING (NOT pg_has_role(current_user, ''werkruf_app'', ''MEMBER''))', home, found.name);
  END LOOP;
END
$$;
