import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { EventQueue } from './event-queue.ts'
import { SlotQueue } from './slot-queue.ts'

describe('the event queue', () => {
  it('returns events by time, and those of one time in insertion order, whatever is popped in between', () => {
    const push = fc.record({ timeUs: fc.nat({ max: 9 }), kind: fc.nat({ max: 3 }) })
    fc.assert(
      fc.property(fc.array(fc.option(push, { freq: 3 }), { maxLength: 300 }), steps => {
        const queue = new EventQueue(1)
        const model: { timeUs: number; kind: number; subject: number }[] = []
        const popBoth = () => {
          const first = model.toSorted((a, b) => a.timeUs - b.timeUs || a.subject - b.subject)[0]
          expect(queue.pop()).toBe(first !== undefined)
          if (first === undefined) return
          expect({ timeUs: queue.timeUs, kind: queue.kind, subject: queue.subject }).toEqual(first)
          model.splice(model.indexOf(first), 1)
        }
        steps.forEach((event, subject) => {
          if (event === null) return popBoth()
          queue.push(event.timeUs, event.kind, subject)
          model.push({ ...event, subject })
        })
        expect(queue.size).toBe(model.length)
        while (model.length > 0) popBoth()
        expect(queue.pop()).toBe(false)
      }),
    )
  })
})

describe('the queue of slots', () => {
  it('is first in, first out, except for slots that are put back in front', () => {
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom('push' as const, 'front' as const, 'shift' as const), { maxLength: 200 }),
        steps => {
          const queue = new SlotQueue()
          const model: number[] = []
          const ways = {
            push: (slot: number) => [queue.push(slot), model.push(slot)],
            front: (slot: number) => [queue.pushFront(slot), model.unshift(slot)],
            shift: () =>
              expect([
                queue.size > 0 ? queue.first : undefined,
                queue.size > 0 ? queue.shift() : undefined,
              ]).toEqual([model[0], model.shift()]),
          }
          steps.forEach((step, slot) => {
            ways[step](slot)
            expect(queue.size).toBe(model.length)
          })
        },
      ),
    )
  })
})
