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
export type Session = Schemas['ConsoleSession'];
/** The document of the API says only that `usage` is an object. */
export type Usage = Schemas['Usage'];
export type Span = Omit<Schemas['Span'], 'usage'> & { usage?: Usage | null };
export type Timeline = Omit<Schemas['Timeline'], 'spans'> & { spans: Span[] };
