/**
 * Output of the NumPy prototype: p50 and p99 in percent against the best load balancer, from runs with one
 * and two seeds.
 */
import type { WorkloadName } from './traces.ts'

/** A quoted number or range, and its ends. */
export interface Quoted {
  readonly text: string
  readonly ends: readonly [low: number, high: number]
}

export interface Figures {
  readonly p50: Quoted
  readonly p99: Quoted
}

type Printed = readonly [p50: string, p99: string]

const PROTOTYPE: Readonly<Record<WorkloadName, Readonly<Record<number, Readonly<Record<string, Printed>>>>>> =
  {
    task: {
      10: { band: ['−10.3', '+11.4'], union: ['−8.5', '−8.7'] },
      20: {
        band: ['−12.9 to −10.5', '+0.8 to +3.3'],
        union: ['−13.1 to −12.0', '−8.5'],
        'union@true': ['−14.3', '−10'],
      },
      35: {
        band: ['−11.5 to −9.6', '0 to +1.3'],
        union: ['−12.1 to −11.6', '−5.8 to −5.0'],
        'union@true': ['−14.1 to −13.7', '−8'],
      },
      45: { band: ['−10.5', '+0.2'], union: ['−12.0', '−5.0'] },
    },
    lang: {
      10: { band: ['−6.9', '+11.4'], union: ['−5.9', '−6.1'] },
      20: {
        domain: ['+7.1', '+27.9'],
        band: ['−11.4 to −10.6', '+7 to +12'],
        union: ['−10.1 to −9.7', '−8.0 to −7.6'],
        'union@true': ['−12.5 to −12.2', '−9'],
      },
      35: {
        domain: ['+3.2', '+18.9'],
        band: ['−10.2', '+5.7'],
        union: ['−9.7', '−6.4'],
        'union@true': ['−11.4', '−8.8'],
      },
      45: { band: ['−8.5', '+1.0'], union: ['−9.6', '−4.4'] },
    },
  }

export function prototypeFigures(
  workload: WorkloadName,
  batch: number,
  variant: string,
): Figures | undefined {
  const printed = PROTOTYPE[workload][batch]?.[variant]
  return printed && { p50: quoted(printed[0]), p99: quoted(printed[1]) }
}

function quoted(text: string): Quoted {
  const ends = text.split(' to ').map(end => Number(end.replace('−', '-')))
  return { text, ends: [ends[0]!, ends.at(-1)!] }
}
