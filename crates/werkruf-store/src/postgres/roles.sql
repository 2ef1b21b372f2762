-- The three roles, created where they are missing. Roles belong to the whole cluster, so another database may be creating the same ones
-- at this moment; a user who may not create roles is fine where an administrator has created them.
DO $$
DECLARE
  wanted text;
  membership text := CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END;
BEGIN
  FOREACH wanted IN ARRAY ARRAY['werkruf_app', 'werkruf_system', 'werkruf_operator'] LOOP
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = wanted) THEN
      BEGIN
        EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
      EXCEPTION
        WHEN duplicate_object OR unique_violation THEN NULL;
        WHEN insufficient_privilege THEN
          RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = format(
            'the role %s is missing and %s may not create it; let an administrator run: CREATE ROLE %s NOLOGIN; GRANT %s TO %s',
            wanted, current_user, wanted, wanted, current_user);
      END;
    END IF;
    IF NOT pg_has_role(current_user, wanted, membership) THEN
      BEGIN
        EXECUTE format('GRANT %I TO %I', wanted, current_user);
      EXCEPTION
        WHEN unique_violation OR internal_error THEN NULL; -- granted by another process at this moment
        WHEN insufficient_privilege THEN
          RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = format(
            '%s is not a member of %s; let an administrator run: GRANT %s TO %s', current_user, wanted, wanted, current_user);
      END;
    END IF;
  END LOOP;
END
$$;
