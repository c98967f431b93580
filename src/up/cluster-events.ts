/** Events of the processes of a cluster, for output. */
export interface ClusterEvents {
  /** A process logged a line. */
  line(name: string, line: string): void
  /** A process exited and will be restarted after a delay. */
  ended(name: string, how: string, pauseMs: number): void
  restarted(name: string, pid: number | undefined): void
}

export const NO_EVENTS: ClusterEvents = {
  line: () => undefined,
  ended: () => undefined,
  restarted: () => undefined,
}
