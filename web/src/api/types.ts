/** Short names of the API's types. */
import type { Schemas } from './client';

export type Call = Schemas['ToolCall'];
export type Explanation = Schemas['Explanation'];
export type Approval = Schemas['Approval'];
export type Tool = Schemas['Tool'];
export type Conversation = Schemas['Conversation'];
export type Message = Schemas['Message'];
export type StoredEvent = Schemas['Event'];
export type User = Schemas['User'];
export type Role = Schemas['Role'];
export type Budget = Schemas['Budget'];
export type Alert = Schemas['Alert'];
export type OutboxRow = Schemas['OutboxRow'];
export type AuditEntry = Schemas['AuditEntry'];
export type UsageRow = Schemas['UsageRow'];
export type May = Schemas['May'];

/** Who the page works for. */
export interface Session {
  operator: boolean;
  tenant_id: string;
  user_id?: string | null;
  name?: string | null;
  scopes: string[];
  acting_user_id?: string | null;
  expires_at: string;
}

export type SpanUsage = Schemas['Usage'];

/** One model request or tool call of a turn. */
export interface Span {
  kind: 'model' | 'tool';
  name: string;
  started_at: string;
  took_ms: number | null;
  status: string;
  step: number;
  job_id?: string | null;
  usage?: SpanUsage | null;
}

export interface Timeline {
  turn: Schemas['Turn'];
  spans: Span[];
  takeovers: number;
}
