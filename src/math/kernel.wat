;; The numeric inner loops of ELDR, in WebAssembly with SIMD. `npm run kernel` compiles this file into kernel-bytes.ts, and a test
;; fails when the two differ. kernel-plain.ts is the same in JavaScript, to the bit: there it says what each function does.
;; Pointers are byte offsets into the instance's own memory. Row strides are multiples of 64 bytes; what lies between a row's end and
;; its stride is zero, so that no loop needs a tail.
(module
  (memory (export "memory") 1)

  ;; (acc0 + acc1), then lanes (0 + 2) + (1 + 3): the order that kernel-plain.ts follows.
  (func $sum (param $acc v128) (result f32)
    (local.set $acc (f32x4.add (local.get $acc) (i8x16.shuffle 8 9 10 11 12 13 14 15 0 1 2 3 4 5 6 7 (local.get $acc) (local.get $acc))))
    (f32.add (f32x4.extract_lane 0 (local.get $acc)) (f32x4.extract_lane 1 (local.get $acc))))

  (func $sumI32 (param $acc v128) (result i32)
    (i32.add
      (i32.add (i32x4.extract_lane 0 (local.get $acc)) (i32x4.extract_lane 1 (local.get $acc)))
      (i32.add (i32x4.extract_lane 2 (local.get $acc)) (i32x4.extract_lane 3 (local.get $acc)))))

  (func $dot (param $a i32) (param $b i32) (param $stride i32) (result f32)
    (local $end i32) (local $acc0 v128) (local $acc1 v128)
    (local.set $end (i32.add (local.get $a) (local.get $stride)))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $a) (local.get $end)))
        (local.set $acc0 (f32x4.add (local.get $acc0) (f32x4.mul (v128.load (local.get $a)) (v128.load (local.get $b)))))
        (local.set $acc1 (f32x4.add (local.get $acc1) (f32x4.mul (v128.load offset=16 (local.get $a)) (v128.load offset=16 (local.get $b)))))
        (local.set $a (i32.add (local.get $a) (i32.const 32)))
        (local.set $b (i32.add (local.get $b) (i32.const 32)))
        (br $next)))
    (call $sum (f32x4.add (local.get $acc0) (local.get $acc1))))

  ;; Four rows at a time: each load of x serves four rows, and eight sums run side by side. Two steps a turn: strides are whole 64 bytes.
  (func (export "dots") (param $rows i32) (param $count i32) (param $stride i32) (param $x i32) (param $out i32)
    (local $r1 i32) (local $r2 i32) (local $r3 i32) (local $at i32) (local $x0 v128) (local $x1 v128)
    (local $xp i32) (local $p0 i32) (local $p1 i32) (local $p2 i32) (local $p3 i32)
    (local $a0 v128) (local $a1 v128) (local $b0 v128) (local $b1 v128) (local $c0 v128) (local $c1 v128) (local $d0 v128) (local $d1 v128)
    (block $few
      (loop $four
        (br_if $few (i32.lt_u (local.get $count) (i32.const 4)))
        (local.set $r1 (i32.add (local.get $rows) (local.get $stride)))
        (local.set $r2 (i32.add (local.get $r1) (local.get $stride)))
        (local.set $r3 (i32.add (local.get $r2) (local.get $stride)))
        (local.set $a0 (v128.const i32x4 0 0 0 0)) (local.set $a1 (v128.const i32x4 0 0 0 0))
        (local.set $b0 (v128.const i32x4 0 0 0 0)) (local.set $b1 (v128.const i32x4 0 0 0 0))
        (local.set $c0 (v128.const i32x4 0 0 0 0)) (local.set $c1 (v128.const i32x4 0 0 0 0))
        (local.set $d0 (v128.const i32x4 0 0 0 0)) (local.set $d1 (v128.const i32x4 0 0 0 0))
        (local.set $at (i32.const 0))
        (block $rowEnd
          (loop $next
            (br_if $rowEnd (i32.ge_u (local.get $at) (local.get $stride)))
            (local.set $xp (i32.add (local.get $x) (local.get $at)))
            (local.set $p0 (i32.add (local.get $rows) (local.get $at))) (local.set $p1 (i32.add (local.get $r1) (local.get $at)))
            (local.set $p2 (i32.add (local.get $r2) (local.get $at))) (local.set $p3 (i32.add (local.get $r3) (local.get $at)))
            (local.set $x0 (v128.load (local.get $xp)))
            (local.set $x1 (v128.load offset=16 (local.get $xp)))
            (local.set $a0 (f32x4.add (local.get $a0) (f32x4.mul (v128.load (local.get $p0)) (local.get $x0))))
            (local.set $a1 (f32x4.add (local.get $a1) (f32x4.mul (v128.load offset=16 (local.get $p0)) (local.get $x1))))
            (local.set $b0 (f32x4.add (local.get $b0) (f32x4.mul (v128.load (local.get $p1)) (local.get $x0))))
            (local.set $b1 (f32x4.add (local.get $b1) (f32x4.mul (v128.load offset=16 (local.get $p1)) (local.get $x1))))
            (local.set $c0 (f32x4.add (local.get $c0) (f32x4.mul (v128.load (local.get $p2)) (local.get $x0))))
            (local.set $c1 (f32x4.add (local.get $c1) (f32x4.mul (v128.load offset=16 (local.get $p2)) (local.get $x1))))
            (local.set $d0 (f32x4.add (local.get $d0) (f32x4.mul (v128.load (local.get $p3)) (local.get $x0))))
            (local.set $d1 (f32x4.add (local.get $d1) (f32x4.mul (v128.load offset=16 (local.get $p3)) (local.get $x1))))
            (local.set $x0 (v128.load offset=32 (local.get $xp)))
            (local.set $x1 (v128.load offset=48 (local.get $xp)))
            (local.set $a0 (f32x4.add (local.get $a0) (f32x4.mul (v128.load offset=32 (local.get $p0)) (local.get $x0))))
            (local.set $a1 (f32x4.add (local.get $a1) (f32x4.mul (v128.load offset=48 (local.get $p0)) (local.get $x1))))
            (local.set $b0 (f32x4.add (local.get $b0) (f32x4.mul (v128.load offset=32 (local.get $p1)) (local.get $x0))))
            (local.set $b1 (f32x4.add (local.get $b1) (f32x4.mul (v128.load offset=48 (local.get $p1)) (local.get $x1))))
            (local.set $c0 (f32x4.add (local.get $c0) (f32x4.mul (v128.load offset=32 (local.get $p2)) (local.get $x0))))
            (local.set $c1 (f32x4.add (local.get $c1) (f32x4.mul (v128.load offset=48 (local.get $p2)) (local.get $x1))))
            (local.set $d0 (f32x4.add (local.get $d0) (f32x4.mul (v128.load offset=32 (local.get $p3)) (local.get $x0))))
            (local.set $d1 (f32x4.add (local.get $d1) (f32x4.mul (v128.load offset=48 (local.get $p3)) (local.get $x1))))
            (local.set $at (i32.add (local.get $at) (i32.const 64)))
            (br $next)))
        (f32.store (local.get $out) (call $sum (f32x4.add (local.get $a0) (local.get $a1))))
        (f32.store offset=4 (local.get $out) (call $sum (f32x4.add (local.get $b0) (local.get $b1))))
        (f32.store offset=8 (local.get $out) (call $sum (f32x4.add (local.get $c0) (local.get $c1))))
        (f32.store offset=12 (local.get $out) (call $sum (f32x4.add (local.get $d0) (local.get $d1))))
        (local.set $out (i32.add (local.get $out) (i32.const 16)))
        (local.set $rows (i32.add (local.get $r3) (local.get $stride)))
        (local.set $count (i32.sub (local.get $count) (i32.const 4)))
        (br $four)))
    (block $done
      (loop $one
        (br_if $done (i32.eqz (local.get $count)))
        (f32.store (local.get $out) (call $dot (local.get $rows) (local.get $x) (local.get $stride)))
        (local.set $out (i32.add (local.get $out) (i32.const 4)))
        (local.set $rows (i32.add (local.get $rows) (local.get $stride)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br $one))))

  ;; The same for rows of 16-bit integers: sums are exact in 32 bits as long as no row is longer than 2^15.
  (func (export "dotsI16") (param $rows i32) (param $count i32) (param $stride i32) (param $x i32) (param $out i32)
    (local $r1 i32) (local $r2 i32) (local $r3 i32) (local $at i32) (local $x0 v128) (local $x1 v128)
    (local $a v128) (local $b v128) (local $c v128) (local $d v128)
    (block $few
      (loop $four
        (br_if $few (i32.lt_u (local.get $count) (i32.const 4)))
        (local.set $r1 (i32.add (local.get $rows) (local.get $stride)))
        (local.set $r2 (i32.add (local.get $r1) (local.get $stride)))
        (local.set $r3 (i32.add (local.get $r2) (local.get $stride)))
        (local.set $a (v128.const i32x4 0 0 0 0)) (local.set $b (v128.const i32x4 0 0 0 0))
        (local.set $c (v128.const i32x4 0 0 0 0)) (local.set $d (v128.const i32x4 0 0 0 0))
        (local.set $at (i32.const 0))
        (block $rowEnd
          (loop $next
            (br_if $rowEnd (i32.ge_u (local.get $at) (local.get $stride)))
            (local.set $x0 (v128.load (i32.add (local.get $x) (local.get $at))))
            (local.set $x1 (v128.load offset=16 (i32.add (local.get $x) (local.get $at))))
            (local.set $a (i32x4.add (local.get $a) (i32x4.add
              (i32x4.dot_i16x8_s (v128.load (i32.add (local.get $rows) (local.get $at))) (local.get $x0))
              (i32x4.dot_i16x8_s (v128.load offset=16 (i32.add (local.get $rows) (local.get $at))) (local.get $x1)))))
            (local.set $b (i32x4.add (local.get $b) (i32x4.add
              (i32x4.dot_i16x8_s (v128.load (i32.add (local.get $r1) (local.get $at))) (local.get $x0))
              (i32x4.dot_i16x8_s (v128.load offset=16 (i32.add (local.get $r1) (local.get $at))) (local.get $x1)))))
            (local.set $c (i32x4.add (local.get $c) (i32x4.add
              (i32x4.dot_i16x8_s (v128.load (i32.add (local.get $r2) (local.get $at))) (local.get $x0))
              (i32x4.dot_i16x8_s (v128.load offset=16 (i32.add (local.get $r2) (local.get $at))) (local.get $x1)))))
            (local.set $d (i32x4.add (local.get $d) (i32x4.add
              (i32x4.dot_i16x8_s (v128.load (i32.add (local.get $r3) (local.get $at))) (local.get $x0))
              (i32x4.dot_i16x8_s (v128.load offset=16 (i32.add (local.get $r3) (local.get $at))) (local.get $x1)))))
            (local.set $at (i32.add (local.get $at) (i32.const 32)))
            (br $next)))
        (i32.store (local.get $out) (call $sumI32 (local.get $a)))
        (i32.store offset=4 (local.get $out) (call $sumI32 (local.get $b)))
        (i32.store offset=8 (local.get $out) (call $sumI32 (local.get $c)))
        (i32.store offset=12 (local.get $out) (call $sumI32 (local.get $d)))
        (local.set $out (i32.add (local.get $out) (i32.const 16)))
        (local.set $rows (i32.add (local.get $r3) (local.get $stride)))
        (local.set $count (i32.sub (local.get $count) (i32.const 4)))
        (br $four)))
    (block $done
      (loop $one
        (br_if $done (i32.eqz (local.get $count)))
        (local.set $a (v128.const i32x4 0 0 0 0))
        (local.set $at (i32.const 0))
        (block $rowEnd
          (loop $next
            (br_if $rowEnd (i32.ge_u (local.get $at) (local.get $stride)))
            (local.set $a (i32x4.add (local.get $a)
              (i32x4.dot_i16x8_s (v128.load (i32.add (local.get $rows) (local.get $at))) (v128.load (i32.add (local.get $x) (local.get $at))))))
            (local.set $at (i32.add (local.get $at) (i32.const 16)))
            (br $next)))
        (i32.store (local.get $out) (call $sumI32 (local.get $a)))
        (local.set $out (i32.add (local.get $out) (i32.const 4)))
        (local.set $rows (i32.add (local.get $rows) (local.get $stride)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br $one))))

  (func (export "pairDots") (param $rows i32) (param $stride i32) (param $i i32) (param $j i32) (param $count i32) (param $out i32)
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $count)))
        (f32.store (local.get $out)
          (call $dot
            (i32.add (local.get $rows) (i32.mul (i32.load (local.get $i)) (local.get $stride)))
            (i32.add (local.get $rows) (i32.mul (i32.load (local.get $j)) (local.get $stride)))
            (local.get $stride)))
        (local.set $i (i32.add (local.get $i) (i32.const 4)))
        (local.set $j (i32.add (local.get $j) (i32.const 4)))
        (local.set $out (i32.add (local.get $out) (i32.const 4)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br $next))))

  (func (export "cosines") (param $sums i32) (param $dots i32) (param $inverse i32) (param $i i32) (param $j i32) (param $count i32) (param $out i32)
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $count)))
        (f32.store (local.get $out)
          (f32.demote_f64
            (f64.mul
              (f64.mul
                (f64.add (f64.load (local.get $sums)) (f64.promote_f32 (f32.load (local.get $dots))))
                (f64.load (i32.add (local.get $inverse) (i32.shl (i32.load (local.get $i)) (i32.const 3)))))
              (f64.load (i32.add (local.get $inverse) (i32.shl (i32.load (local.get $j)) (i32.const 3)))))))
        (local.set $sums (i32.add (local.get $sums) (i32.const 8)))
        (local.set $dots (i32.add (local.get $dots) (i32.const 4)))
        (local.set $i (i32.add (local.get $i) (i32.const 4)))
        (local.set $j (i32.add (local.get $j) (i32.const 4)))
        (local.set $out (i32.add (local.get $out) (i32.const 4)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br $next))))

  ;; Entries are key << 32 | position, the key ordered as the float is and counted from the lowest. Only bits in which keys differ are
  ;; sorted, 12 at most a pass; the digits of all passes are counted in one go.
  (func (export "sort") (param $values i32) (param $count i32) (param $a i32) (param $b i32) (param $counters i32) (result i32)
    (local $low i32) (local $bits i32) (local $passes i32) (local $digit i32) (local $mask i32) (local $shift i32) (local $table i32)
    (local $n i32) (local $at i32) (local $key i32) (local $slot i32) (local $to i32) (local $end i32) (local $e i64) (local $swap i32)
    (local.set $low (call $keys (local.get $values) (local.get $count) (local.get $counters)))
    (local.set $bits (i32.sub (i32.load (local.get $counters)) (local.get $low)))
    (local.set $bits (i32.sub (i32.const 32) (i32.clz (local.get $bits))))
    (local.set $passes (i32.div_u (i32.add (local.get $bits) (i32.const 11)) (i32.const 12)))
    (if (i32.eqz (local.get $passes)) (then (local.set $passes (i32.const 1))))
    (local.set $digit (i32.div_u (i32.sub (i32.add (local.get $bits) (local.get $passes)) (i32.const 1)) (local.get $passes)))
    (local.set $mask (i32.sub (i32.shl (i32.const 1) (local.get $digit)) (i32.const 1)))
    (memory.fill (local.get $counters) (i32.const 0) (i32.mul (local.get $passes) (i32.const 16384)))
    (local.set $end (i32.add (local.get $values) (i32.shl (local.get $count) (i32.const 2))))
    (local.set $at (local.get $values))
    (block $tallied
      (loop $tally
        (br_if $tallied (i32.ge_u (local.get $at) (local.get $end)))
        (local.set $key (i32.sub (i32.load (local.get $at)) (local.get $low)))
        (i32.store (local.get $at) (local.get $key))
        (local.set $slot (i32.add (local.get $counters) (i32.shl (i32.and (local.get $key) (local.get $mask)) (i32.const 2))))
        (i32.store (local.get $slot) (i32.add (i32.load (local.get $slot)) (i32.const 8)))
        (if (i32.gt_u (local.get $passes) (i32.const 1))
          (then
            (local.set $slot (i32.add (local.get $counters) (i32.shl
              (i32.and (i32.shr_u (local.get $key) (local.get $digit)) (local.get $mask)) (i32.const 2))))
            (i32.store offset=16384 (local.get $slot) (i32.add (i32.load offset=16384 (local.get $slot)) (i32.const 8)))
            (if (i32.gt_u (local.get $passes) (i32.const 2))
              (then
                (local.set $slot (i32.add (local.get $counters) (i32.shl
                  (i32.shr_u (local.get $key) (i32.shl (local.get $digit) (i32.const 1))) (i32.const 2))))
                (i32.store offset=32768 (local.get $slot) (i32.add (i32.load offset=32768 (local.get $slot)) (i32.const 8)))))))
        (local.set $at (i32.add (local.get $at) (i32.const 4)))
        (br $tally)))
    (call $starts (local.get $counters) (local.get $mask) (local.get $a))
    (local.set $at (local.get $values))
    (block $placed
      (loop $place
        (br_if $placed (i32.ge_u (local.get $at) (local.get $end)))
        (local.set $key (i32.load (local.get $at)))
        (local.set $slot (i32.add (local.get $counters) (i32.shl (i32.and (local.get $key) (local.get $mask)) (i32.const 2))))
        (local.set $to (i32.load (local.get $slot)))
        (i32.store (local.get $slot) (i32.add (local.get $to) (i32.const 8)))
        (i64.store (local.get $to) (i64.or (i64.shl (i64.extend_i32_u (local.get $key)) (i64.const 32)) (i64.extend_i32_u (local.get $n))))
        (local.set $n (i32.add (local.get $n) (i32.const 1)))
        (local.set $at (i32.add (local.get $at) (i32.const 4)))
        (br $place)))
    (local.set $table (local.get $counters))
    (block $done
      (loop $pass
        (local.set $passes (i32.sub (local.get $passes) (i32.const 1)))
        (br_if $done (i32.eqz (local.get $passes)))
        (local.set $shift (i32.add (local.get $shift) (local.get $digit)))
        (local.set $table (i32.add (local.get $table) (i32.const 16384)))
        (call $starts (local.get $table) (local.get $mask) (local.get $b))
        (local.set $at (local.get $a))
        (local.set $end (i32.add (local.get $a) (i32.shl (local.get $count) (i32.const 3))))
        (block $moved
          (loop $move
            (br_if $moved (i32.ge_u (local.get $at) (local.get $end)))
            (local.set $e (i64.load (local.get $at)))
            (local.set $slot (i32.add (local.get $table) (i32.shl
              (i32.and (i32.shr_u (i32.wrap_i64 (i64.shr_u (local.get $e) (i64.const 32))) (local.get $shift)) (local.get $mask)) (i32.const 2))))
            (local.set $to (i32.load (local.get $slot)))
            (i32.store (local.get $slot) (i32.add (local.get $to) (i32.const 8)))
            (i64.store (local.get $to) (local.get $e))
            (local.set $at (i32.add (local.get $at) (i32.const 8)))
            (br $move)))
        (local.set $swap (local.get $a))
        (local.set $a (local.get $b))
        (local.set $b (local.get $swap))
        (br $pass)))
    (local.get $a))

  ;; Turns floats into keys where they lie. Returns the lowest and leaves the highest at $out.
  (func $keys (param $values i32) (param $count i32) (param $out i32) (result i32)
    (local $end i32) (local $key v128) (local $low v128) (local $high v128) (local $one i32) (local $least i32) (local $most i32)
    (local.set $low (v128.const i32x4 -1 -1 -1 -1))
    (local.set $end (i32.add (local.get $values) (i32.shl (i32.and (local.get $count) (i32.const -4)) (i32.const 2))))
    (block $fours
      (loop $four
        (br_if $fours (i32.ge_u (local.get $values) (local.get $end)))
        (local.set $key (f32x4.add (v128.load (local.get $values)) (v128.const f32x4 0 0 0 0))) ;; + 0 turns −0 into +0
        (local.set $key (v128.xor (local.get $key)
          (v128.or (i32x4.shr_s (local.get $key) (i32.const 31)) (v128.const i32x4 0x80000000 0x80000000 0x80000000 0x80000000))))
        (local.set $low (i32x4.min_u (local.get $low) (local.get $key)))
        (local.set $high (i32x4.max_u (local.get $high) (local.get $key)))
        (v128.store (local.get $values) (local.get $key))
        (local.set $values (i32.add (local.get $values) (i32.const 16)))
        (br $four)))
    (local.set $end (i32.add (local.get $values) (i32.shl (i32.and (local.get $count) (i32.const 3)) (i32.const 2))))
    (block $ones
      (loop $next
        (br_if $ones (i32.ge_u (local.get $values) (local.get $end)))
        (local.set $one (i32.reinterpret_f32 (f32.add (f32.load (local.get $values)) (f32.const 0))))
        (local.set $one (i32.xor (local.get $one) (i32.or (i32.shr_s (local.get $one) (i32.const 31)) (i32.const 0x80000000))))
        (local.set $low (i32x4.min_u (local.get $low) (i32x4.splat (local.get $one))))
        (local.set $high (i32x4.max_u (local.get $high) (i32x4.splat (local.get $one))))
        (i32.store (local.get $values) (local.get $one))
        (local.set $values (i32.add (local.get $values) (i32.const 4)))
        (br $next)))
    (local.set $low (i32x4.min_u (local.get $low) (i8x16.shuffle 8 9 10 11 12 13 14 15 0 1 2 3 4 5 6 7 (local.get $low) (local.get $low))))
    (local.set $low (i32x4.min_u (local.get $low) (i8x16.shuffle 4 5 6 7 0 1 2 3 12 13 14 15 8 9 10 11 (local.get $low) (local.get $low))))
    (local.set $high (i32x4.max_u (local.get $high) (i8x16.shuffle 8 9 10 11 12 13 14 15 0 1 2 3 4 5 6 7 (local.get $high) (local.get $high))))
    (local.set $high (i32x4.max_u (local.get $high) (i8x16.shuffle 4 5 6 7 0 1 2 3 12 13 14 15 8 9 10 11 (local.get $high) (local.get $high))))
    (i32.store (local.get $out) (i32x4.extract_lane 0 (local.get $high)))
    (i32x4.extract_lane 0 (local.get $low)))

  ;; Tallies (in bytes of entries) become the addresses at which each digit's entries begin.
  (func $starts (param $table i32) (param $mask i32) (param $at i32)
    (local $tally i32) (local $end i32)
    (local.set $end (i32.add (local.get $table) (i32.shl (local.get $mask) (i32.const 2))))
    (loop $next
      (local.set $tally (i32.load (local.get $table)))
      (i32.store (local.get $table) (local.get $at))
      (local.set $at (i32.add (local.get $at) (local.get $tally)))
      (local.set $table (i32.add (local.get $table) (i32.const 4)))
      (br_if $next (i32.le_u (local.get $table) (local.get $end)))))

  (func (export "centredRanks") (param $sorted i32) (param $count i32) (param $out i32) (result f64)
    (local $from i32) (local $to i32) (local $end i32) (local $key i32) (local $rank f64) (local $mean f64) (local $squares f64)
    (local.set $mean (f64.mul (f64.add (f64.convert_i32_u (local.get $count)) (f64.const 1)) (f64.const 0.5)))
    (local.set $from (local.get $sorted))
    (local.set $end (i32.add (local.get $sorted) (i32.shl (local.get $count) (i32.const 3))))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $from) (local.get $end)))
        (local.set $key (i32.load offset=4 (local.get $from)))
        (local.set $to (local.get $from))
        (block $ran
          (loop $same
            (local.set $to (i32.add (local.get $to) (i32.const 8)))
            (br_if $ran (i32.ge_u (local.get $to) (local.get $end)))
            (br_if $same (i32.eq (local.get $key) (i32.load offset=4 (local.get $to))))))
        ;; positions from … to − 1, counted from 0: their mean rank is (from + 1 + to)/2
        (local.set $rank (f64.sub
          (f64.mul (f64.const 0.5) (f64.convert_i32_u (i32.add (i32.const 1) (i32.shr_u
            (i32.add (i32.sub (local.get $from) (local.get $sorted)) (i32.sub (local.get $to) (local.get $sorted))) (i32.const 3)))))
          (local.get $mean)))
        (local.set $squares (f64.add (local.get $squares) (f64.mul
          (f64.convert_i32_u (i32.shr_u (i32.sub (local.get $to) (local.get $from)) (i32.const 3)))
          (f64.mul (local.get $rank) (local.get $rank)))))
        (loop $write
          (f64.store (i32.add (local.get $out) (i32.shl (i32.load (local.get $from)) (i32.const 3))) (local.get $rank))
          (local.set $from (i32.add (local.get $from) (i32.const 8)))
          (br_if $write (i32.lt_u (local.get $from) (local.get $to))))
        (br $next)))
    (local.get $squares))

  ;; Ranks are positions, since the other side's ranks sum to 0; a value equal to the one before joins its run, whose mean rank rises by
  ;; a half for all of it.
  (func (export "correlation") (param $sorted i32) (param $count i32) (param $centred i32) (param $squares f64) (result f64)
    (local $at i32) (local $end i32) (local $e i64) (local $key i64) (local $before i64)
    (local $c f64) (local $position f64) (local $run f64) (local $sum f64) (local $product f64) (local $tied f64) (local $n f64)
    (local.set $n (f64.convert_i32_u (local.get $count)))
    (local.set $before (i64.const -1))
    (local.set $at (local.get $sorted))
    (local.set $end (i32.add (local.get $sorted) (i32.shl (local.get $count) (i32.const 3))))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
        (local.set $e (i64.load (local.get $at)))
        (local.set $key (i64.shr_u (local.get $e) (i64.const 32)))
        (local.set $c (f64.load (i32.add (local.get $centred) (i32.shl (i32.wrap_i64 (local.get $e)) (i32.const 3)))))
        (if (i64.ne (local.get $key) (local.get $before))
          (then
            (local.set $product (f64.add (local.get $product) (f64.mul (local.get $position) (local.get $c))))
            (local.set $sum (local.get $c))
            (local.set $run (f64.const 1))
            (local.set $before (local.get $key)))
          (else
            (local.set $product (f64.add (local.get $product) (f64.add
              (f64.mul (f64.const 0.5) (local.get $sum))
              (f64.mul (local.get $c) (f64.sub (local.get $position) (f64.mul (f64.const 0.5) (local.get $run)))))))
            (local.set $tied (f64.add (local.get $tied)
              (f64.mul (f64.const 3) (f64.mul (local.get $run) (f64.add (local.get $run) (f64.const 1))))))
            (local.set $sum (f64.add (local.get $sum) (local.get $c)))
            (local.set $run (f64.add (local.get $run) (f64.const 1)))))
        (local.set $position (f64.add (local.get $position) (f64.const 1)))
        (local.set $at (i32.add (local.get $at) (i32.const 8)))
        (br $next)))
    (local.set $n (f64.div (f64.sub (f64.mul (local.get $n) (f64.sub (f64.mul (local.get $n) (local.get $n)) (f64.const 1))) (local.get $tied)) (f64.const 12)))
    (if (f64.le (f64.mul (local.get $n) (local.get $squares)) (f64.const 0)) (then (return (f64.const 0))))
    (f64.div (local.get $product) (f64.sqrt (f64.mul (local.get $n) (local.get $squares)))))

  ;; out = counts × weights, eight at a time; returns the sum of squares.
  (func (export "weigh") (param $counts i32) (param $weights i32) (param $out i32) (param $count i32) (result f32)
    (local $end i32) (local $eight v128) (local $x v128) (local $acc0 v128) (local $acc1 v128)
    (local.set $end (i32.add (local.get $counts) (i32.shl (local.get $count) (i32.const 1))))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $counts) (local.get $end)))
        (local.set $eight (v128.load (local.get $counts)))
        (local.set $x (f32x4.mul (f32x4.convert_i32x4_u (i32x4.extend_low_i16x8_u (local.get $eight))) (v128.load (local.get $weights))))
        (local.set $acc0 (f32x4.add (local.get $acc0) (f32x4.mul (local.get $x) (local.get $x))))
        (v128.store (local.get $out) (local.get $x))
        (local.set $x (f32x4.mul (f32x4.convert_i32x4_u (i32x4.extend_high_i16x8_u (local.get $eight))) (v128.load offset=16 (local.get $weights))))
        (local.set $acc1 (f32x4.add (local.get $acc1) (f32x4.mul (local.get $x) (local.get $x))))
        (v128.store offset=16 (local.get $out) (local.get $x))
        (local.set $counts (i32.add (local.get $counts) (i32.const 16)))
        (local.set $weights (i32.add (local.get $weights) (i32.const 32)))
        (local.set $out (i32.add (local.get $out) (i32.const 32)))
        (br $next)))
    (call $sum (f32x4.add (local.get $acc0) (local.get $acc1))))

  ;; x = x × factor, four at a time.
  (func (export "scale") (param $x i32) (param $count i32) (param $factor f32)
    (local $end i32) (local $by v128)
    (local.set $by (f32x4.splat (local.get $factor)))
    (local.set $end (i32.add (local.get $x) (i32.shl (local.get $count) (i32.const 2))))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $x) (local.get $end)))
        (v128.store (local.get $x) (f32x4.mul (v128.load (local.get $x)) (local.get $by)))
        (local.set $x (i32.add (local.get $x) (i32.const 16)))
        (br $next))))

  ;; Sums of logs and the chance e^−sum, four cells at a time. 2^x is the polynomial of x's fraction with x's whole part as its exponent.
  (func (export "addLogs") (param $sums i32) (param $logs i32) (param $sign i32) (param $idle i32) (param $count i32) (param $step f32) (result f32)
    (local $end i32) (local $sum v128) (local $x v128) (local $whole v128) (local $f v128) (local $busy v128) (local $one v128) (local $scale v128) (local $times v128)
    (local.set $one (f32x4.splat (f32.const 1)))
    (local.set $times (i32x4.splat (local.get $sign)))
    (local.set $scale (f32x4.splat (f32.mul (local.get $step) (f32.const -1.4426950216293335))))
    (local.set $end (i32.add (local.get $sums) (i32.shl (local.get $count) (i32.const 2))))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $sums) (local.get $end)))
        (local.set $sum (i32x4.add (v128.load (local.get $sums)) (i32x4.mul (v128.load16x4_u (local.get $logs)) (local.get $times))))
        (v128.store (local.get $sums) (local.get $sum))
        (local.set $x (f32x4.max (f32x4.mul (f32x4.convert_i32x4_s (local.get $sum)) (local.get $scale)) (f32x4.splat (f32.const -126))))
        (local.set $whole (f32x4.floor (local.get $x)))
        (local.set $f (f32x4.sub (local.get $x) (local.get $whole)))
        (local.set $x (f32x4.splat (f32.const 0.0018775766948238015)))
        (local.set $x (f32x4.add (f32x4.mul (local.get $x) (local.get $f)) (f32x4.splat (f32.const 0.008989339694380760))))
        (local.set $x (f32x4.add (f32x4.mul (local.get $x) (local.get $f)) (f32x4.splat (f32.const 0.055826318264007568))))
        (local.set $x (f32x4.add (f32x4.mul (local.get $x) (local.get $f)) (f32x4.splat (f32.const 0.24015361070632935))))
        (local.set $x (f32x4.add (f32x4.mul (local.get $x) (local.get $f)) (f32x4.splat (f32.const 0.69315308332443237))))
        (local.set $x (f32x4.add (f32x4.mul (local.get $x) (local.get $f)) (local.get $one)))
        (local.set $x (f32x4.mul (local.get $x)
          (i32x4.shl (i32x4.add (i32x4.trunc_sat_f32x4_s (local.get $whole)) (i32x4.splat (i32.const 127))) (i32.const 23))))
        (v128.store (local.get $idle) (local.get $x))
        (local.set $busy (f32x4.add (local.get $busy) (f32x4.sub (local.get $one) (local.get $x))))
        (local.set $sums (i32.add (local.get $sums) (i32.const 16)))
        (local.set $logs (i32.add (local.get $logs) (i32.const 8)))
        (local.set $idle (i32.add (local.get $idle) (i32.const 16)))
        (br $next)))
    (call $sum (local.get $busy)))

  ;; Weighted sums of rows of bytes, sixteen cells at a time: all rows of a chunk before the next chunk, so that sums stay in registers.
  (func (export "mixBytes") (param $rows i32) (param $stride i32) (param $which i32) (param $weights i32) (param $count i32) (param $out i32)
    (local $chunk i32) (local $n i32) (local $row v128) (local $weight v128) (local $low v128) (local $high v128)
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $chunk) (local.get $stride)))
        (local.set $low (v128.const i32x4 0 0 0 0))
        (local.set $high (v128.const i32x4 0 0 0 0))
        (local.set $n (i32.const 0))
        (block $summed
          (loop $each
            (br_if $summed (i32.ge_u (local.get $n) (local.get $count)))
            (local.set $row (v128.load (i32.add (i32.add (local.get $rows) (local.get $chunk))
              (i32.mul (i32.load (i32.add (local.get $which) (i32.shl (local.get $n) (i32.const 2)))) (local.get $stride)))))
            (local.set $weight (i8x16.splat (i32.load (i32.add (local.get $weights) (i32.shl (local.get $n) (i32.const 2))))))
            (local.set $low (i16x8.add (local.get $low) (i16x8.extmul_low_i8x16_u (local.get $row) (local.get $weight))))
            (local.set $high (i16x8.add (local.get $high) (i16x8.extmul_high_i8x16_u (local.get $row) (local.get $weight))))
            (local.set $n (i32.add (local.get $n) (i32.const 1)))
            (br $each)))
        (v128.store (local.get $out) (local.get $low))
        (v128.store offset=16 (local.get $out) (local.get $high))
        (local.set $out (i32.add (local.get $out) (i32.const 32)))
        (local.set $chunk (i32.add (local.get $chunk) (i32.const 16)))
        (br $next))))
)
