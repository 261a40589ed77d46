//! The triangle that each pixel of a map shows.

use super::super::geometry::{Vector, cross, dot, lon_lat, middle, minus};
use super::super::mesh::Mesh;
use std::collections::VecDeque;

/// Longitude of the map's left edge, degrees. It goes through Africa, so that no ocean is cut.
const WEST: f64 = 25.0;
/// Latitudes of the lower and upper edge, degrees. There is no ocean further south.
const SOUTH: f64 = -80.0;
const NORTH: f64 = 90.0;

/// A map of longitude and latitude, both linear.
pub struct Raster {
    /// Pixels from left to right.
    pub width: usize,
    /// Pixels from top to bottom.
    pub height: usize,
    /// The point in each pixel, by rows from the top; `None` for land.
    pub pixels: Vec<Option<Hit>>,
}

/// A point in a triangle.
#[derive(Debug, Clone, Copy)]
pub struct Hit {
    /// Its corners.
    pub nodes: [u32; 3],
    /// Weight of each corner in a linear interpolation; they sum to 1.
    pub weights: [f64; 3],
}

impl Hit {
    /// Interpolates a field of the nodes.
    pub fn value(&self, field: &[f64]) -> f64 {
        self.nodes.iter().zip(self.weights).map(|(&node, weight)| weight * field[node as usize]).sum()
    }

    /// The node whose cell contains the point.
    pub fn nearest(&self) -> u32 {
        let heavier = |best: usize, at: usize| if self.weights[at] > self.weights[best] { at } else { best };
        self.nodes[(1..3).fold(0, heavier)]
    }
}

impl Raster {
    /// The map of a mesh, `width` pixels wide.
    pub fn new(mesh: &Mesh, width: usize) -> Self {
        let height = (width as f64 * (NORTH - SOUTH) / 360.0).round() as usize;
        let mut raster = Self { width, height, pixels: vec![None; width * height] };
        for triangle in 0..mesh.triangles().len() {
            raster.fill(mesh.triangles()[triangle], mesh.corners(triangle));
        }
        raster
    }

    /// The place of a longitude and latitude (degrees) on the map, in pixels from its upper left corner.
    pub fn place(&self, longitude: f64, latitude: f64) -> (f64, f64) {
        let x = (longitude - WEST).rem_euclid(360.0) / 360.0 * self.width as f64;
        let y = (NORTH - latitude) / (NORTH - SOUTH) * self.height as f64;
        (x, y)
    }

    /// The point of the sphere at the middle of a pixel.
    fn point(&self, x: usize, y: usize) -> Vector {
        let longitude = (WEST + 360.0 * (x as f64 + 0.5) / self.width as f64).to_radians();
        let latitude = (NORTH - (NORTH - SOUTH) * (y as f64 + 0.5) / self.height as f64).to_radians();
        [latitude.cos() * longitude.cos(), latitude.cos() * longitude.sin(), latitude.sin()]
    }

    /// Sets the pixels of a triangle. It tests all pixels in the circle around the triangle.
    fn fill(&mut self, nodes: [u32; 3], corners: [Vector; 3]) {
        let centre = middle(&corners);
        let distance = |corner: Vector| {
            let chord = minus(corner, centre);
            2.0 * (0.5 * dot(chord, chord).sqrt()).min(1.0).asin()
        };
        let radius = corners.map(distance).into_iter().fold(0.0, f64::max);
        let (longitude, latitude) = lon_lat(centre);
        let (north, south) = (latitude + radius.to_degrees(), latitude - radius.to_degrees());
        let around_pole = north >= 90.0 || south <= -90.0;
        let width = if around_pole {
            180.0
        } else {
            (radius.sin() / latitude.to_radians().cos()).asin().to_degrees()
        };

        let (middle, top) = self.place(longitude, north.min(90.0));
        let (_, bottom) = self.place(longitude, south);
        let reach = (width / 360.0 * self.width as f64).ceil() as usize + 1;
        let columns = if 2 * reach >= self.width {
            0..self.width
        } else {
            let first = middle as usize + self.width - reach;
            first..first + 2 * reach + 1
        };
        // The conversion saturates: above the map is its first row.
        let rows = top as usize..(bottom.ceil() as usize).min(self.height);
        let sides = [0, 1, 2].map(|c| cross(corners[(c + 1) % 3], corners[(c + 2) % 3]));
        for y in rows {
            for x in columns.clone().map(|x| x % self.width) {
                let point = self.point(x, y);
                let parts = sides.map(|side| dot(point, side));
                if parts.iter().all(|&part| part >= 0.0) {
                    let sum: f64 = parts.iter().sum();
                    let weights = parts.map(|part| part / sum);
                    self.pixels[y * self.width + x] = Some(Hit { nodes, weights });
                }
            }
        }
    }

    /// The owner of the cell that each pixel shows.
    pub fn owners(&self, owners: &[u32]) -> Vec<Option<u32>> {
        self.pixels.iter().map(|hit| hit.map(|hit| owners[hit.nearest() as usize])).collect()
    }

    /// The pixels to the right of, below, and diagonally below a pixel. Columns are periodic.
    pub fn neighbours(&self, at: usize) -> impl Iterator<Item = usize> {
        let (x, y) = (at % self.width, at / self.width);
        let right = (x + 1) % self.width;
        let below = (y + 1 < self.height).then_some(y + 1);
        [Some((right, y)), below.map(|y| (x, y)), below.map(|y| (right, y))]
            .into_iter()
            .flatten()
            .map(move |(x, y)| y * self.width + x)
    }

    /// For each owner the place of its label: its pixel with the largest distance from other owners' pixels.
    pub fn label_places(&self, owners: &[Option<u32>]) -> Vec<(u32, (usize, usize))> {
        let mut distance = vec![usize::MAX; owners.len()];
        let mut queue = VecDeque::new();
        for at in 0..owners.len() {
            let (x, y) = (at % self.width, at / self.width);
            let at_edge = x == 0 || y == 0 || x + 1 == self.width || y + 1 == self.height;
            if at_edge || self.around(at).any(|other| owners[other] != owners[at]) {
                distance[at] = 0;
                queue.push_back(at);
            }
        }
        while let Some(at) = queue.pop_front() {
            for other in self.around(at) {
                if distance[other] == usize::MAX {
                    distance[other] = distance[at] + 1;
                    queue.push_back(other);
                }
            }
        }
        let mut best = std::collections::BTreeMap::new();
        for (at, owner) in owners.iter().enumerate() {
            if let Some(owner) = *owner {
                let place = best.entry(owner).or_insert(at);
                if distance[at] > distance[*place] {
                    *place = at;
                }
            }
        }
        best.into_iter().map(|(owner, at)| (owner, (at % self.width, at / self.width))).collect()
    }

    /// The adjacent pixels, at most four.
    fn around(&self, at: usize) -> impl Iterator<Item = usize> {
        let (x, y) = (at % self.width, at / self.width);
        let left = (x > 0).then(|| at - 1);
        let right = (x + 1 < self.width).then(|| at + 1);
        let above = (y > 0).then(|| at - self.width);
        let below = (y + 1 < self.height).then(|| at + self.width);
        [left, right, above, below].into_iter().flatten()
    }
}
