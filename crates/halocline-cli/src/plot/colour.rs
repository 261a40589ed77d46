//! Colours: maps from numbers, and one colour a rank.

/// Red, green and blue.
pub(crate) type Rgb = [u8; 3];

/// A colour map: colours at equal distances, linear in between.
pub(crate) struct ColourMap(&'static [Rgb]);

/// For temperature. cmocean's `thermal` (K. Thyng et al., "True colors of oceanography", Oceanography 29
/// (2016); MIT licence), perceptually uniform.
pub(crate) const THERMAL: ColourMap = ColourMap(&[
    [4, 35, 51],
    [6, 42, 71],
    [12, 48, 96],
    [25, 51, 124],
    [44, 51, 149],
    [68, 53, 160],
    [86, 59, 156],
    [101, 66, 151],
    [116, 73, 146],
    [131, 80, 143],
    [144, 85, 139],
    [160, 90, 135],
    [177, 95, 130],
    [192, 100, 123],
    [208, 105, 112],
    [223, 112, 100],
    [235, 121, 88],
    [244, 133, 75],
    [249, 147, 65],
    [252, 163, 61],
    [251, 180, 61],
    [249, 198, 65],
    [245, 215, 72],
    [239, 233, 81],
    [232, 250, 91],
]);

/// For differences: cmocean's `balance`.
pub(crate) const BALANCE: ColourMap = ColourMap(&[
    [24, 28, 67],
    [33, 42, 98],
    [41, 56, 136],
    [37, 72, 176],
    [12, 94, 190],
    [27, 116, 187],
    [56, 136, 186],
    [83, 153, 186],
    [117, 170, 190],
    [152, 186, 197],
    [182, 201, 207],
    [213, 218, 221],
    [241, 236, 235],
    [231, 213, 207],
    [223, 187, 176],
    [215, 162, 144],
    [208, 139, 115],
    [200, 114, 85],
    [191, 87, 58],
    [182, 61, 40],
    [165, 33, 37],
    [141, 16, 41],
    [115, 14, 39],
    [86, 14, 30],
    [60, 9, 18],
]);

impl ColourMap {
    /// The colour at a place from 0 to 1; beyond, that of the nearer end.
    pub(crate) fn at(&self, place: f64) -> Rgb {
        let last = self.0.len() - 1;
        let place = if place.is_nan() { 0.0 } else { place.clamp(0.0, 1.0) * last as f64 };
        let low = (place as usize).min(last - 1);
        blend(self.0[low], self.0[low + 1], place - low as f64)
    }
}

/// A light colour for a rank; the ranks from the tenth on begin again.
pub(crate) fn of_rank(rank: u32) -> Rgb {
    const COLOURS: [Rgb; 10] = [
        [126, 176, 213],
        [253, 180, 98],
        [141, 202, 134],
        [238, 130, 131],
        [186, 163, 214],
        [200, 160, 130],
        [243, 174, 212],
        [196, 196, 110],
        [120, 205, 200],
        [175, 185, 195],
    ];
    COLOURS[rank as usize % COLOURS.len()]
}

/// `a` and `b` mixed: a at share 0, b at share 1.
pub(crate) fn blend(a: Rgb, b: Rgb, share: f64) -> Rgb {
    std::array::from_fn(|at| (f64::from(a[at]) * (1.0 - share) + f64::from(b[at]) * share).round() as u8)
}
