//! Exchanges on grids of patches: turned, flipped and negated transfers by every path.

mod ghex;

use crate::fixtures::{Fixture, by};
use crate::form::{Form, Kind};
use crate::stage::Stage;
use crate::subject::{Home, Place, Role, Subject};
use crate::{Case, Outcome, Trouble, ensure};
use halocline::plan::{Cells, Transfer};
use halocline::{
    Array, Corners, Decomposed, DomainShape, ElementType, Error, GatherError, Halo, HaloExchange,
    LayoutError, LinkChoice, PatchGrid, PatchSide, Pattern, Pivot, Quantity, Seam,
};
use std::collections::HashMap;

pub(crate) const CASES: &[Case] = &[
    Case { name: "patches::scalars_on_turned_tiles", run: scalars },
    Case { name: "patches::vectors_change_components_and_signs", run: vectors },
    Case { name: "patches::layouts_of_each_kind_on_turned_tiles", run: layouts },
    Case { name: "patches::a_narrower_halo_of_the_same_arrays", run: narrowed },
    Case { name: "patches::fields_given_to_each_exchange", run: unbound },
    Case { name: "patches::messages_packed_by_hand", run: packed },
    Case { name: "patches::all_values_on_one_rank", run: gathered },
    Case { name: "patches::six_tiles_as_ghex_joins_them", run: ghex::six_tiles },
    Case { name: "patches::a_component_alone_and_integers_are_refused", run: refused },
];

fn grids() -> Result<[PatchGrid; 4], Trouble> {
    Ok([
        PatchGrid::cubed_sphere(4)?.corners(Corners::ThroughAxis(0))?,
        PatchGrid::lat_lon_cap(2)?,
        PatchGrid::latitude_longitude([6, 8])?,
        PatchGrid::tripolar([7, 10], Pivot::Cell)?,
    ])
}

fn pattern(comm: &Stage<'_>, grid: &PatchGrid, quantity: &Quantity, halo: usize) -> Result<Pattern, Error> {
    Pattern::patches(comm, &grid.decompose(comm.size())?, quantity, &Halo::uniform(halo))
}

/// A domain, and a cell from its first one.
type Cell = (u64, [i64; 2]);

/// What a rank knows of the cells of its domains: for cells that are filled, the one that they copy.
struct Filled<'a> {
    /// The cell that each cell copies, and whether the sign changes.
    sources: HashMap<Cell, (Cell, bool)>,
    pattern: &'a Pattern,
}

impl<'a> Filled<'a> {
    fn new(pattern: &'a Pattern) -> Result<Self, Trouble> {
        let plan = pattern.plan();
        let mut sources = HashMap::new();
        for Transfer { from, to, source, target, map, is_negated } in
            plan.peers.iter().flat_map(|peer| &peer.receives).chain(&plan.local)
        {
            let (Cells::Box(source), Cells::Box(target)) = (source, target) else {
                return Err(Trouble::new("patches have boxes"));
            };
            let columns = target.extent[1];
            for number in 0..target.extent[0] * columns {
                let step = [number / columns, number % columns];
                let mut at = [0; 2];
                for axis in 0..2 {
                    let along = map.source_axis(axis);
                    let step =
                        if map.flipped[axis] { target.extent[axis] - 1 - step[axis] } else { step[axis] };
                    at[along] = source.low[along] + step as i64;
                }
                let cell = [target.low[0] + step[0] as i64, target.low[1] + step[1] as i64];
                sources.insert((*to, cell), ((*from, at), *is_negated));
            }
        }
        Ok(Self { sources, pattern })
    }

    /// Field `number` of every domain of this rank, of all components.
    fn subjects(
        &self,
        comm: &Stage<'_>,
        number: u64,
        (kind, home): (&Kind, Home),
        form: impl Fn(u64) -> Form,
    ) -> Result<Vec<Subject>, Trouble> {
        let mut subjects = Vec::new();
        for (domain, shape) in &self.pattern.plan().domains {
            let DomainShape::Regular { owned, halo, .. } = shape else {
                return Err(Trouble::new("patches are regular"));
            };
            let form = form(*domain);
            let origin = [0, 1].map(|axis| form.slack(axis).0 + halo[axis].0);
            let extents = [0, 1].map(|axis| origin[axis] + owned[axis] + halo[axis].1 + form.slack(axis).1);
            let id = |domain: u64, cell: [i64; 2]| domain << 40 | (cell[0] as u64) << 20 | cell[1] as u64;
            let mut negated = Vec::new();
            let mut places: Vec<Place> = Vec::new();
            for index in 0..extents[0] * extents[1] {
                let index = [index / extents[1], index % extents[1]];
                let cell = [0, 1].map(|axis| index[axis] as i64 - origin[axis] as i64);
                let is_held = (0..2).all(|axis| (0..owned[axis] as i64).contains(&cell[axis]));
                let source = self.sources.get(&(*domain, cell));
                negated.push(source.is_some_and(|(_, is_negated)| *is_negated));
                places.push(match source {
                    Some(((from, source), _)) => (index.to_vec(), id(*from, *source), Role::Halo),
                    None if is_held => (index.to_vec(), id(*domain, cell), Role::Owned),
                    None => (index.to_vec(), 0, Role::Spare),
                });
            }
            let subject =
                Subject::new(comm, (*domain, number), (kind, &form, home), (&extents, &origin), places)?;
            subjects.push(subject.negated(negated));
        }
        Ok(subjects)
    }
}

fn fixture(comm: &Stage<'_>, pattern: &Pattern, kinds: &[Kind]) -> Result<Fixture, Trouble> {
    fixture_in(comm, pattern, (kinds, comm.home()))
}

fn fixture_in(
    comm: &Stage<'_>,
    pattern: &Pattern,
    (kinds, home): (&[Kind], Home),
) -> Result<Fixture, Trouble> {
    let filled = Filled::new(pattern)?;
    let mut fixture = Fixture::default();
    for (number, kind) in (0..).zip(kinds) {
        fixture.add(pattern, filled.subjects(comm, number, (kind, home), |_| Form::default())?);
    }
    Ok(fixture)
}

/// Fields of a quantity on grids with all kinds of seams, in memory of `home`.
pub(super) fn on_seams(
    comm: &Stage<'_>,
    quantity: &Quantity,
    (kinds, home): (&[Kind], Home),
) -> Result<Vec<(Pattern, Fixture)>, Trouble> {
    let of_grid = |grid: &PatchGrid| {
        let pattern = pattern(comm, grid, quantity, 1)?;
        let fixture = fixture_in(comm, &pattern, (kinds, home))?;
        Ok((pattern, fixture))
    };
    grids()?.iter().map(of_grid).collect()
}

fn scalars(comm: &Stage<'_>) -> Outcome {
    for grid in grids()? {
        for quantity in [Quantity::cells(), Quantity::corners()] {
            let pattern = pattern(comm, &grid, &quantity, 2)?;
            let kinds = [Kind::plain(ElementType::F64), Kind::with_extra(ElementType::U8, &[3])];
            fixture(comm, &pattern, &kinds)?.every_path(comm, 2)?;
        }
    }
    Ok(())
}

fn vectors(comm: &Stage<'_>) -> Outcome {
    let kinds = [
        Kind::plain(ElementType::F64),
        Kind::with_extra(ElementType::F32, &[5]),
        Kind::plain(ElementType::F16),
        Kind::with_extra(ElementType::C64, &[2]),
    ];
    for grid in grids()? {
        for quantity in [Quantity::cell_vectors(), Quantity::c_grid(), Quantity::d_grid()] {
            let pattern = pattern(comm, &grid, &quantity, 1)?;
            fixture(comm, &pattern, &kinds)?.every_path(comm, 2)?;
        }
    }
    Ok(())
}

fn layouts(comm: &Stage<'_>) -> Outcome {
    let forms = [Form::default(), Form::fortran(), Form::negative(), Form::padded()];
    let pattern = pattern(comm, &PatchGrid::cubed_sphere(3)?, &Quantity::c_grid(), 2)?;
    let filled = Filled::new(&pattern)?;
    let mut fixture = Fixture::default();
    for (number, kind) in (0..).zip([Kind::plain(ElementType::F64), Kind::with_extra(ElementType::F32, &[4])])
    {
        // Another layout on each domain.
        let form = |domain: u64| match comm.is_on_device() {
            // Devices need aligned elements.
            true => forms[(domain + number) as usize % 3].clone(),
            false => forms[(domain + number) as usize % 4].clone(),
        };
        fixture.add(&pattern, filled.subjects(comm, number, (&kind, comm.home()), form)?);
    }
    fixture.every_path(comm, 2)
}

fn narrowed(comm: &Stage<'_>) -> Outcome {
    let wide = pattern(comm, &PatchGrid::cubed_sphere(4)?, &Quantity::c_grid(), 3)?;
    for width in [0, 1, 3] {
        let narrow = wide.narrowed(comm, &Halo::uniform(width))?;
        fixture(comm, &narrow, &[Kind::plain(ElementType::F64)])?.every_path(comm, 2)?;
    }
    Ok(())
}

fn unbound(comm: &Stage<'_>) -> Outcome {
    if comm.is_on_device() {
        // The topic of unbound fields on devices has links of its own.
        return Ok(());
    }
    for grid in grids()? {
        let pattern = pattern(comm, &grid, &Quantity::c_grid(), 1)?;
        let kinds = [Kind::plain(ElementType::F64), Kind::with_extra(ElementType::F32, &[2])];
        let mut fixture = fixture(comm, &pattern, &kinds)?;
        let [auto, _, _, mailbox, message] = comm.choices();
        for link in [auto, mailbox, message] {
            let links = fixture.links(comm, &by(link))?;
            fixture.unbound_steps(&links, 2)?;
        }
    }
    Ok(())
}

/// A chain of patches, one on each rank: each is turned against the one before.
fn packed(comm: &Stage<'_>) -> Outcome {
    let seam = |patch| Seam::join_reversed(PatchSide::high(patch, 1), PatchSide::low(patch + 1, 0));
    let grid =
        PatchGrid::new(vec![[4, 4]; comm.size()], (1..comm.size()).map(|patch| seam(patch - 1)).collect())?;
    let cut = grid.decompose_into(&vec![[1, 1]; comm.size()], comm.size())?;
    for quantity in [Quantity::corners(), Quantity::c_grid()] {
        let pattern = Pattern::patches(comm, &cut, &quantity, &Halo::uniform(2))?;
        ensure!(pattern.plan().local.is_empty(), "a patch fills its own halo");
        let mut fixture = fixture(comm, &pattern, &[Kind::plain(ElementType::F64)])?;
        let halo = fixture.bind(comm, &by(LinkChoice::Auto))?;
        fixture.packed_step(comm, &halo)?;
    }
    Ok(())
}

fn refused(comm: &Stage<'_>) -> Outcome {
    let pattern = pattern(comm, &PatchGrid::cubed_sphere(3)?, &Quantity::c_grid(), 1)?;
    let both = fixture(comm, &pattern, &[Kind::plain(ElementType::F64)])?;
    let first: Vec<_> = both.fields().into_iter().step_by(2).collect();
    let error = HaloExchange::bind(comm, &first).err().map(|error| error.to_string());
    ensure!(
        error.as_ref().is_some_and(|text| text.contains("component 1 of domain")),
        "a component alone: {error:?}"
    );
    let integers = fixture(comm, &pattern, &[Kind::plain(ElementType::I32)])?;
    let error = integers.bind(comm, &by(LinkChoice::Auto)).err();
    let is_sign = |error: &Error| match error {
        Error::Field { error, .. } => matches!(error, LayoutError::NoSign { .. }),
        Error::Elsewhere { .. } => true,
        _ => false,
    };
    ensure!(error.as_ref().is_some_and(is_sign), "integers: {error:?}");
    let error = pattern.component(2).err();
    ensure!(
        matches!(error, Some(Error::NoComponent { component: 2, components: 2 })),
        "a third one: {error:?}"
    );
    let fields = integers.fields().into_iter().map(|(_, field)| field.clone()).collect::<Vec<_>>();
    let error = pattern.gather_field_to(comm, 0, &fields).err();
    ensure!(is_gathered(&error, |error| matches!(error, GatherError::Vectors)), "vectors: {error:?}");
    let caps = PatchGrid::lat_lon_cap(2)?.decompose(comm.size())?.pattern(comm, 1)?;
    let caps = fixture(comm, &caps, &[Kind::plain(ElementType::F64)])?;
    let (pattern, fields): (Vec<_>, Vec<_>) = caps.fields().into_iter().map(|(p, f)| (p, f.clone())).unzip();
    let error = pattern[0].gather_field_to(comm, 0, &fields).err();
    let extents = |error: &GatherError| matches!(error, GatherError::PatchExtents { patch: 2, .. });
    ensure!(is_gathered(&error, extents), "patches of other extents: {error:?}");
    Ok(())
}

/// Whether a rank has found an error of gathering, or another one has.
fn is_gathered(error: &Option<Error>, is_expected: impl Fn(&GatherError) -> bool) -> bool {
    match error {
        Some(Error::Gather(error)) => is_expected(error),
        Some(Error::Elsewhere { .. }) => true,
        _ => false,
    }
}

/// Each value of the tiles is where it lies in them.
fn gathered(comm: &Stage<'_>) -> Outcome {
    let cut = PatchGrid::cubed_sphere(4)?.decompose(comm.size())?;
    let quantity = Quantity::c_grid();
    let pattern = Pattern::patches(comm, &cut, &quantity, &Halo::uniform(1))?.component(0)?;
    let mut parts = Vec::new();
    for domain in pattern.domains() {
        let block =
            cut.values(domain.number(), &quantity, 0).ok_or_else(|| Trouble::new("no such domain"))?;
        let array = Array::<f64>::zeros(comm, &domain.extents())?;
        let mut cells = array.write()?;
        for row in 0..block.extents[0] {
            for column in 0..block.extents[1] {
                let at = (row + 1) * domain.extents()[1] + column + 1;
                let place = (block.patch * 100 + block.first[0] + row) * 100 + block.first[1] + column;
                cells[at] = place as f64;
            }
        }
        drop(cells);
        parts.push(array.on_domain(domain.number()));
    }
    let Some(all) = pattern.gather_to::<f64>(comm, 0, &parts)? else { return Ok(()) };
    ensure!(all.layout().extents() == [6, 5, 4], "{:?}", all.layout());
    for (at, value) in all.read()?.iter().enumerate() {
        let expected = (at / 20 * 100 + at / 4 % 5) * 100 + at % 4;
        ensure!(*value == expected as f64, "value {at} is {value} instead of {expected}");
    }
    Ok(())
}
