// A straightforward simulator: requests and events are objects, events are in a sorted array, the experts of
// a step are sets of numbers, and every measured value is kept. Decode only, shortest queue. Its results
// equal the product's bit for bit, so only the implementation differs in time.

/**
 * Ways to find the active experts of a step, mean over layers, from its batch. trace: {ids:
 * [rows][maxSteps][layers][topK], steps: [rows], maxSteps, layers, experts, topK}.
 */
export const ACTIVE = {
  /** First version: lists of experts, and a set per layer. */
  sets({ ids, steps, maxSteps, layers, topK }) {
    const lists = Array.from(steps, (made, row) =>
      Array.from({ length: made }, (_, step) =>
        Array.from({ length: layers }, (__, layer) => {
          const at = ((row * maxSteps + step) * layers + layer) * topK
          return Array.from(ids.subarray(at, at + topK))
        }),
      ),
    )
    return batch => {
      const distinct = Array.from({ length: layers }, () => new Set())
      for (const { row, made } of batch) {
        lists[row][made].forEach((experts, layer) => {
          for (const expert of experts) distinct[layer].add(expert)
        })
      }
      return distinct.reduce((sum, { size }) => sum + size, 0) / layers
    }
  },
  /** Faster version: the file's flat array, and a mark per expert and layer. */
  marks({ ids, maxSteps, layers, experts, topK }) {
    const marked = new Uint8Array(layers * experts)
    return batch => {
      marked.fill(0)
      let count = 0
      for (const { row, made } of batch) {
        let at = (row * maxSteps + made) * layers * topK
        for (let layer = 0; layer < layers; layer++) {
          for (let choice = 0; choice < topK; choice++, at++) {
            const cell = layer * experts + ids[at]
            if (marked[cell] === 0) count++
            marked[cell] = 1
          }
        }
      }
      return count / layers
    }
  },
}

/**
 * @param activeOf one of ACTIVE, of the trace
 * @param steps [rows] that each row replays
 * @param random breaks ties between equal queues; with the product's source it makes the product's decisions
 * @returns {tpotUs: of each measured request, activeExperts, batch}
 */
export function simulatePlainly({
  activeOf,
  steps,
  profile,
  workers,
  arrivalsUs,
  rows,
  random,
  maxBatch = 256,
}) {
  if (profile.decode.perContextKTokenUs > 0 || profile.decode.windows?.length > 0)
    throw new Error('context costs are not simulated here')
  const requests = arrivalsUs.length
  // The first 15 % and the last 10 % of the requests are not measured; steps are from the first measured
  // arrival to the one after the last.
  const [first, end] = [Math.floor(requests * 0.15), Math.ceil(requests * 0.9)]
  const cluster = Array.from({ length: workers }, () => ({
    waiting: [],
    batch: [],
    busy: false,
    inflight: 0,
    active: 0,
  }))
  const events = []
  const tpotUs = []
  let [arrived, tokens, activeTokens, batchTokens] = [0, 0, 0, 0]

  function schedule(event) {
    let at = events.length
    while (at > 0 && events[at - 1].timeUs > event.timeUs) at--
    events.splice(at, 0, event)
  }

  function shortestQueue() {
    let best = cluster[0]
    let bestTie = random()
    for (const worker of cluster.slice(1)) {
      if (worker.inflight > best.inflight) continue
      const tie = random()
      if (worker.inflight === best.inflight && tie <= bestTie) continue
      best = worker
      bestTie = tie
    }
    return best
  }

  function stepUs(batch, active) {
    const { decode, shape } = profile
    const moeUs = shape.layers * (decode.perLayerUs + decode.perActiveExpertUs * active)
    return decode.baseUs + decode.perRequestUs * batch + moeUs
  }

  function startStep(worker, nowUs) {
    while (worker.waiting.length > 0 && worker.batch.length < maxBatch)
      worker.batch.push(worker.waiting.shift())
    worker.busy = worker.batch.length > 0
    if (!worker.busy) return
    worker.active = activeOf(worker.batch)
    schedule({ timeUs: nowUs + stepUs(worker.batch.length, worker.active), worker })
  }

  function endStep(worker, nowUs) {
    const batch = worker.batch.length
    if (arrived > first && arrived <= end) {
      tokens += batch
      activeTokens += batch * worker.active
      batchTokens += batch * batch
    }
    for (const request of worker.batch) {
      request.made++
      if (request.made === 1) request.firstUs = nowUs
      if (request.made < steps[request.row]) continue
      worker.inflight--
      if (request.index >= first && request.index < end)
        tpotUs.push((nowUs - request.firstUs) / (request.made - 1))
    }
    worker.batch = worker.batch.filter(({ row, made }) => made < steps[row])
  }

  schedule({ timeUs: arrivalsUs[0] })
  while (events.length > 0) {
    const { timeUs, worker } = events.shift()
    if (worker !== undefined) {
      endStep(worker, timeUs)
      startStep(worker, timeUs)
      continue
    }
    const request = { index: arrived, row: rows[arrived], made: 0, firstUs: NaN }
    arrived++
    if (arrived < requests) schedule({ timeUs: arrivalsUs[arrived] })
    const picked = shortestQueue()
    picked.inflight++
    picked.waiting.push(request)
    if (!picked.busy) startStep(picked, timeUs)
  }
  return { tpotUs, activeExperts: activeTokens / tokens, batch: batchTokens / tokens }
}
