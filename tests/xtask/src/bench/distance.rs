//! How far the two processors are from each other. A host moves virtual processors, from second to second, and then each cache line takes
//! several times as long. So only what was measured at the same distance is compared.

/// Two distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Distance {
    Near,
    Far,
}

/// What separates the distances of one machine, in nanoseconds for a cache line to go to the other processor and back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Distances {
    between: f64,
}

impl Distances {
    /// Finds it among everything that was measured; zeros were not.
    pub(super) fn among(measured: impl Iterator<Item = f64>) -> Self {
        let mut known: Vec<f64> = measured.filter(|it| *it > 0.0).collect();
        known.sort_by(f64::total_cmp);
        // Two distances differ by a factor of several; what is measured at one varies by a third, and seldom more.
        let nearest = known.get(known.len() / 100).copied();
        Self { between: nearest.unwrap_or_default() * 2.5 }
    }

    /// The distance during what began and ended at these; `None` if it changed, or was not measured.
    pub(super) fn during(self, [before, after]: [f64; 2]) -> Option<Distance> {
        let distance = |measured: f64| if measured < self.between { Distance::Near } else { Distance::Far };
        let is_known = before > 0.0 && after > 0.0;
        (is_known && distance(before) == distance(after)).then(|| distance(before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_differ_by_a_factor_of_several() {
        let two = Distances::among([0.0, 330.0, 50.0, 60.0, 350.0, 55.0].into_iter());
        let during = |before, after| two.during([before, after]);
        assert_eq!([during(50.0, 60.0), during(320.0, 355.0)], [Some(Distance::Near), Some(Distance::Far)]);
        assert_eq!([during(50.0, 330.0), during(330.0, 50.0), during(0.0, 50.0), during(330.0, 0.0)], [None; 4]);
        let one = Distances::among([200.0, 210.0, 260.0].into_iter());
        assert_eq!(one.during([200.0, 260.0]), Some(Distance::Near));
        assert_eq!(Distances::among([0.0].into_iter()).during([0.0, 0.0]), None);
    }
}
