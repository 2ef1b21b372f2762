/** MCP servers: whether they are connected, and tools of theirs whose definition has changed. */
import { api, ApiError, type Schemas } from '../api/client';
import { t } from '../i18n';
import { ActionButton, Section, Status } from '../parts/basics';
import { type Resource, useResource } from '../resource';
import { session } from '../session';

type McpServer = Schemas['McpServer'];
export type ForeignTools = Pick<Schemas['ForeignTools'], 'servers'>;

const NONE: ForeignTools = { servers: [] };

/** Only the operator may see the servers. A server without MCP has no such route. */
export function useForeignTools(): Resource<ForeignTools> {
  const operator = session.value?.operator ?? false;
  return useResource<ForeignTools>(async (signal) => {
    if (!operator) return NONE;
    return api.get('/api/admin/tools', { signal }).catch((error: unknown): ForeignTools => {
      if (error instanceof ApiError && error.status === 404) return NONE;
      throw error;
    });
  }, [operator]);
}

/** The MCP server that a tool comes from. */
export const serverOf = (foreign: ForeignTools | undefined, tool: string) => foreign?.servers.find((server) => server.tools.includes(tool) || server.changed.includes(tool));

function Server({ server, reload }: { server: McpServer; reload: () => Promise<void> }) {
  const accept = (name: string) => async () => {
    await api.post('/api/admin/tools/{name}/accept', { path: { name }, body: {} });
    await reload();
  };
  return (
    <article class="card">
      <div class="card-head">
        <h3>{server.name}</h3>
        <Status status={server.state} />
      </div>
      <p class="muted">
        {t('tools_n', { count: server.tools.length })}
        {server.protocol && ` · MCP ${server.protocol}`}
      </p>
      {server.error && <p class="turn-error">{server.error}</p>}
      {server.changed.map((name) => (
        <p class="warn-note">
          <code>{name}</code> {t('tool_changed')} <ActionButton label={t('tool_accept')} action={accept(name)} />
        </p>
      ))}
      {server.refused.map(({ tool, reason }) => (
        <p class="muted">
          <code>{tool}</code> {reason}
        </p>
      ))}
    </article>
  );
}

export function McpServers({ foreign }: { foreign: Resource<ForeignTools> }) {
  const servers = foreign.data.value?.servers ?? [];
  if (!servers.length) return null;
  return (
    <Section title={t('mcp_servers')}>
      <div class="cards">
        {servers.map((server) => (
          <Server key={server.name} server={server} reload={foreign.reload} />
        ))}
      </div>
    </Section>
  );
}
