//! What ranks have used, as the kernel counts it: sums, and the largest process. Nodes report it when their ranks have ended, once for all of
//! them, so it costs a few numbers per node.

use rsd_proto::v1::Usage;

/// Adds what other processes have used. Numbers of peers may be anything: they saturate.
pub(crate) fn add(sum: &mut Usage, other: &Usage) {
    sum.ranks = sum.ranks.saturating_add(other.ranks);
    for (sum, other) in [
        (&mut sum.user_us, other.user_us),
        (&mut sum.system_us, other.system_us),
        (&mut sum.minor_faults, other.minor_faults),
        (&mut sum.major_faults, other.major_faults),
        (&mut sum.voluntary_switches, other.voluntary_switches),
        (&mut sum.involuntary_switches, other.involuntary_switches),
    ] {
        *sum = sum.saturating_add(other);
    }
    if other.peak_bytes > sum.peak_bytes {
        (sum.peak_bytes, sum.peak_rank) = (other.peak_bytes, other.peak_rank);
    }
    sum.known |= other.known;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_counts_add_up_and_the_largest_process_is_named() {
        let one = |rank, peak_bytes| Usage {
            ranks: 1,
            user_us: 10,
            system_us: 1,
            minor_faults: 5,
            voluntary_switches: u64::MAX,
            peak_bytes,
            peak_rank: rank,
            known: true,
            ..Default::default()
        };
        let mut sum = Usage::default();
        [one(4, 100), one(5, 300), one(6, 300)].iter().for_each(|used| add(&mut sum, used));
        assert_eq!((sum.ranks, sum.user_us, sum.system_us, sum.minor_faults), (3, 30, 3, 15));
        assert_eq!((sum.peak_bytes, sum.peak_rank), (300, 5), "the first of equals");
        assert_eq!((sum.voluntary_switches, sum.major_faults), (u64::MAX, 0));
    }
}
