//! Scales: where numbers lie between the two ends of an axis.

/// An axis. Its ends are logarithms where it is logarithmic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    is_log: bool,
    least: f64,
    most: f64,
}

/// The part of its length that a logarithmic axis goes on behind its last numbers, and the least that it shows, in decades.
const MARGIN: f64 = 0.05;
const DECADES_MIN: f64 = 0.2;

/// About so many ticks does an axis have.
const TICKS: f64 = 6.0;

/// The decades of a logarithmic axis that all have a tick.
const DECADES_MAX: f64 = 8.0;

impl Scale {
    /// A logarithmic axis of these numbers; none if none of them is finite and above zero.
    pub(super) fn log(numbers: impl IntoIterator<Item = f64>) -> Option<Scale> {
        let numbers = numbers.into_iter().filter(|number| number.is_finite() && *number > 0.0);
        let (least, most) = ends(numbers.map(f64::log10))?;
        let margin = ((most - least) * MARGIN).max((DECADES_MIN - (most - least)) / 2.0);
        Some(Scale { is_log: true, least: least - margin, most: most + margin })
    }

    /// An axis of these numbers that has zero on it; none if none of them is finite.
    pub(super) fn linear(numbers: impl IntoIterator<Item = f64>) -> Option<Scale> {
        let (least, most) = ends(numbers.into_iter().filter(|number| number.is_finite()))?;
        let (least, most) = (least.min(0.0), most.max(0.0));
        let most = if least == most { 1.0 } else { most };
        (most - least).is_finite().then_some(Scale { is_log: false, least, most })
    }

    /// Where a number lies, from 0 to 1; none if it lies nowhere: outside, no number, or not above zero on a logarithmic axis.
    pub(super) fn at(&self, number: f64) -> Option<f64> {
        let number = if self.is_log { number.log10() } else { number };
        let part = (number - self.least) / (self.most - self.least);
        (0.0..=1.0).contains(&part).then_some(part)
    }

    /// The same; what lies outside lies at the nearer end.
    pub(super) fn clamped(&self, number: f64) -> f64 {
        let number = match number {
            _ if number.is_nan() => return 0.0,
            _ if self.is_log && number <= 0.0 => return 0.0,
            _ if self.is_log => number.log10(),
            _ => number,
        };
        ((number - self.least) / (self.most - self.least)).clamp(0.0, 1.0)
    }

    /// The numbers that are written at the axis.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let decades = self.most - self.least;
        if !self.is_log {
            return round_steps(self.least, self.most);
        }
        let steps: &[f64] = match decades {
            _ if decades > 3.0 => &[1.0],
            _ if decades > 1.2 => &[1.0, 3.0],
            _ if decades > 0.7 => &[1.0, 2.0, 5.0],
            _ => return round_steps(10f64.powf(self.least), 10f64.powf(self.most)),
        };
        let every = (decades / DECADES_MAX).ceil().max(1.0) as usize;
        let exponents = (self.least.floor() as i32..=self.most.ceil() as i32).step_by(every);
        let ticks = exponents
            .flat_map(|exponent| steps.iter().map(move |step| step * 10f64.powi(exponent)));
        ticks.filter(|tick| self.at(*tick).is_some()).collect()
    }
}

fn ends(numbers: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    numbers
        .map(|number| (number, number))
        .reduce(|ends, (number, _)| (ends.0.min(number), ends.1.max(number)))
}

/// Multiples of 1, 2 or 5 times a power of ten between two ends.
fn round_steps(least: f64, most: f64) -> Vec<f64> {
    let rough = (most - least) / TICKS;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().map(|times| times * power).find(|step| *step >= rough);
    let step = step.unwrap_or(10.0 * power);
    let first = (least / step).ceil();
    // Rounding can bring one more within the ends.
    (0..=TICKS as u32 + 1)
        .map(|count| (first + f64::from(count)) * step)
        .filter(|tick| *tick <= most * (1.0 + 1e-12))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_NUMBERS: [f64; 5] = [0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];

    #[test]
    fn logarithmic_axis_takes_what_has_a_logarithm() {
        let scale = Scale::log([10.0, 1000.0].into_iter().chain(NO_NUMBERS)).unwrap();
        assert_eq!(scale, Scale::log([10.0, 1000.0]).unwrap());
        assert!((scale.at(100.0).unwrap() - 0.5).abs() < 1e-9);
        assert!(scale.at(10.0).unwrap() > 0.0 && scale.at(1000.0).unwrap() < 1.0);
        assert_eq!(NO_NUMBERS.map(|number| scale.at(number)), [None; 5]);
        assert_eq!(NO_NUMBERS.map(|number| scale.clamped(number)), [0.0, 0.0, 0.0, 1.0, 0.0]);
        assert_eq!((Scale::log(NO_NUMBERS), Scale::log([])), (None, None));
        assert_eq!(scale.ticks(), [10.0, 30.0, 100.0, 300.0, 1000.0]);
    }

    #[test]
    fn one_number_has_an_axis_too() {
        for number in [5e-324, 1e-9, 7.0, f64::MAX] {
            let scale = Scale::log([number, number]).unwrap();
            let at = scale.at(number).unwrap();
            assert!((at - 0.5).abs() < 1e-9, "{number}: {at}");
            assert!(scale.ticks().len() < 12);
        }
        assert_eq!(Scale::log([7.0]).unwrap().ticks(), [6.0, 7.0, 8.0]);
        assert_eq!(Scale::linear([0.0]).unwrap().ticks().last(), Some(&1.0));
        assert_eq!(Scale::linear([-5.0]).unwrap().at(0.0), Some(1.0));
    }

    #[test]
    fn axis_over_all_numbers_has_few_ticks() {
        let ticks = Scale::log([5e-324, f64::MAX]).unwrap().ticks();
        assert!(
            (3..12).contains(&ticks.len()) && ticks.iter().all(|tick| tick.is_finite()),
            "{ticks:?}"
        );
        assert_eq!(Scale::linear([f64::MAX, -f64::MAX]), None, "its length is no number");
        assert_eq!(
            Scale::linear([0.0, 60.0]).unwrap().ticks(),
            [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0]
        );
        assert_eq!(Scale::linear(NO_NUMBERS).unwrap().at(-1.0), Some(0.0));
    }
}
