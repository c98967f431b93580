/** What happens to the processes of a cluster, for whoever shows it. */
export interface ClusterEvents {
  /** A line of a process's log. */
  line(name: string, line: string): void
  /** It ended by itself and will be started again after a pause. */
  ended(name: string, how: string, pauseMs: number): void
  restarted(name: string, pid: number | undefined): void
}

export const NO_EVENTS: ClusterEvents = {
  line: () => undefined,
  ended: () => undefined,
  restarted: () => undefined,
}
