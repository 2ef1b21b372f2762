-- The audit log. The roles of the server may not change entries; this function, with the rights of the owner of the table, blanks values.

-- Blanks the values of the entries about a person of the tenant of this transaction, and returns their numbers.
CREATE OR REPLACE FUNCTION blank_audit_values(the_tenant uuid, the_person text) RETURNS SETOF bigint
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
  UPDATE audit_entries SET before = NULL, after = NULL, salt = NULL
  WHERE tenant_id = the_tenant AND tenant_id = nullif(current_setting('werkruf.tenant', true), '')::uuid AND person = the_person
    AND salt IS NOT NULL
  RETURNING seq;
$$;
REVOKE ALL ON FUNCTION blank_audit_values FROM PUBLIC;
GRANT EXECUTE ON FUNCTION blank_audit_values TO werkruf_app;
