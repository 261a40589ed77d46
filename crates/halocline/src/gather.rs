//! A distributed field as one array: in the memory of one rank, or in a file.

mod error;

pub use error::GatherError;

use crate::agree::{agree, same_as_rank_0};
use crate::binding::Parts;
use crate::error::Error;

use crate::field::{Array, Field, element_of, is_element};
use crate::npy;
use crate::patches::Patches;
use crate::pattern::{Kind, Pattern};
use crate::redistribute::Redistribute;
#[cfg(feature = "zarr")]
use crate::zarr;
use halocline_comm::Communicator;
use halocline_device::{Element, file};
use halocline_plan::copy::CellLayout;
use halocline_plan::{
    Along, CellContent, ElementType, Halo, Layout, LayoutError, NamedElement, RegularGrid, UnstructuredDomain,
};
use std::path::Path;

impl Pattern {
    /// Copies the owned cells of a distributed field into one array on rank `root`; the other ranks get `None`. Collective: blocks until
    /// all ranks have called it. Rank `root` needs memory for the whole field.
    ///
    /// `fields` are this rank's [`Parts`], one for each of its domains ([`Field::on_domain`] where a rank has several). The array is in C
    /// order. For a regular grid its dimensions are those of the grid, then the extra ones of the field (levels, components). For
    /// patches of equal extents they are the patches, rows and columns. For an unstructured pattern its first dimension is
    /// the cells by ascending global id.
    ///
    /// Fails on all ranks if `root` is no rank, if fields do not fit the pattern or each other, or if their elements are no `T`.
    ///
    /// ```
    /// # use halocline::{Array, Communicator, Decomposed, Halo, RegularGrid};
    /// # let comm = Communicator::init()?;
    /// let pattern = RegularGrid::new([6, 4]).pattern(&comm, Halo::uniform(1))?;
    /// let t = Array::<f64>::zeros(&comm, &pattern.domain()?.extents())?;
    /// t.write()?.fill(3.0);
    /// if let Some(all) = pattern.gather_to::<f64>(&comm, 0, &t)? {
    ///     assert_eq!(all.layout().extents(), [6, 4]);
    ///     assert_eq!(all.read()?.iter().sum::<f64>(), 3.0 * 24.0);
    /// }
    /// # Ok::<(), halocline::Error>(())
    /// ```
    pub fn gather_to<T: Element>(
        &self,
        comm: &Communicator,
        root: usize,
        fields: impl Parts,
    ) -> Result<Option<Array<T>>, Error> {
        let comm = &comm.within("gather_to");
        self.gather(comm, root, &fields.parts(), Some(&element_of::<T>()))
            .map(|field| field.map(Array::of_field))
    }

    /// As [`Pattern::gather_to`], for elements whose type is known at run time only. The field is in C order, without gaps.
    pub fn gather_field_to(
        &self,
        comm: &Communicator,
        root: usize,
        fields: impl Parts,
    ) -> Result<Option<Field>, Error> {
        self.gather(&comm.within("gather_to"), root, &fields.parts(), None)
    }

    /// Writes the owned cells of a distributed field to a NumPy file (format version 1.0) if the name ends in `.npy`, or to a Zarr
    /// version 3 array (a directory) if it ends in `.zarr`, which needs the feature `zarr`. Cells are ordered as by
    /// [`Pattern::gather_to`].
    ///
    /// Collective: blocks until the file is complete. Rank 0 gathers and writes it; it replaces an older file as a whole, so that an
    /// error leaves the older file as it was. All ranks give the same path.
    ///
    /// Fails on all ranks as [`Pattern::gather_to`] does, with [`Error::Differs`] if ranks give different paths, and with
    /// [`Error::FileElement`] if the format lacks the element type, or with [`GatherError::WithoutZarr`] without that feature. On rank 0 it fails with [`GatherError::NotAnArray`] if something else
    /// than an array of Zarr is there, and with [`Error::Save`] if the file cannot be written; the others get [`Error::Elsewhere`] then.
    ///
    /// ```
    /// use halocline::{Array, Communicator, Decomposed, RegularGrid};
    ///
    /// let comm = Communicator::init()?;
    /// let pattern = RegularGrid::new((6, 4)).pattern(&comm, 1)?;
    /// let t = Array::<f64>::zeros(&comm, &pattern.domain()?.extents())?;
    /// # let file = std::env::temp_dir().join(format!("halocline-save-{}.npy", std::process::id()));
    /// pattern.save(&comm, &file, &t)?; // t.npy
    /// # assert!(std::fs::read(&file).is_ok_and(|bytes| bytes.starts_with(b"\x93NUMPY")));
    /// # std::fs::remove_file(&file).expect("the file was written");
    /// # Ok::<(), halocline::Error>(())
    /// ```
    pub fn save(&self, comm: &Communicator, path: impl AsRef<Path>, fields: impl Parts) -> Result<(), Error> {
        let fields = &fields.parts()[..];
        let (comm, path) = (&comm.within("save"), path.as_ref());
        let of_rank_0 = comm.broadcast(0, path.as_os_str().as_encoded_bytes().to_vec())?;
        let is_same = of_rank_0 == path.as_os_str().as_encoded_bytes();
        agree(
            comm,
            if is_same { check_file(path, fields, cfg!(feature = "zarr")) } else { Err(other_path(comm)) },
        )?;
        let all = self.gather(comm, 0, fields, None)?;
        agree(comm, all.map_or(Ok(()), |all| write(path, &all)))
    }

    fn gather(
        &self,
        comm: &Communicator,
        root: usize,
        fields: &[&Field],
        wanted: Option<&NamedElement>,
    ) -> Result<Option<Field>, Error> {
        let same_root = same_as_rank_0(comm, &[root as u64])?;
        let checked = check(comm, root, fields, wanted).and_then(|()| self.check_fields(fields));
        let differs = |_| Error::Differs { rank: comm.rank(), what: "root" };
        agree(comm, checked.and_then(|()| same_root.map_err(differs)))?;
        let redistribute = self.to_one_domain(comm, root)?;
        let cell = cell_of_all(comm, self.axes(), fields)?;
        // The ranks may have asked for different types.
        agree(comm, check_elements(0, &cell, wanted))?;
        let whole = agree(comm, redistribute.whole(comm, root, &cell))?;
        let parts: Vec<&Field> = whole.iter().map(|whole| &whole.rows).collect();
        redistribute.moves.bind(comm, fields, parts)?.exchange()?.wait()?;
        Ok(whole.map(|whole| whole.all))
    }

    /// All cells to one domain on `root`.
    fn to_one_domain(&self, comm: &Communicator, root: usize) -> Result<ToOne, Error> {
        match self.kind() {
            Kind::Regular(grid) => {
                let from = &grid.decomposition;
                let extents = from.extents().to_vec();
                let whole = vec![(root, vec![0; extents.len()], extents.clone())];
                let to = agree(comm, RegularGrid::new(&extents[..]).decompose_boxes(whole, comm.size()))?;
                let moves = Redistribute::regular(comm, (from, &grid.around), (&to, &Halo::uniform(0)))?;
                Ok(ToOne { moves, rows: extents.clone(), extents })
            }
            Kind::Patches(patches) => self.patches_to_one(comm, root, patches),
            Kind::Unstructured(domains) => {
                let owned: Vec<u8> =
                    domains.iter().flat_map(UnstructuredDomain::owned).flat_map(u64::to_le_bytes).collect();
                let parts = comm.sparse_exchange(vec![(root, owned)])?;
                let ids =
                    parts.iter().flat_map(|(_, part)| part.as_chunks().0).copied().map(u64::from_le_bytes);
                let mut ids: Vec<u64> = ids.collect();
                ids.sort_unstable();
                let extents = vec![ids.len()];
                let whole = (comm.rank() == root).then(|| UnstructuredDomain::new(0, ids, Vec::new()));
                let moves = Redistribute::unstructured(comm, domains, whole.as_slice())?;
                Ok(ToOne { moves, rows: extents.clone(), extents })
            }
            Kind::Redistribution => Err(Error::OfRedistribution { what: "gathered" }),
        }
    }

    /// All patches to one domain on `root`: their rows one after the other.
    fn patches_to_one(&self, comm: &Communicator, root: usize, patches: &Patches) -> Result<ToOne, Error> {
        let Patches { decomposition, quantity, around, .. } = patches;
        let component = self.component.unwrap_or(0);
        let extents = agree(comm, equal_extents(patches, component).map_err(Error::from))?;
        let rows = vec![decomposition.grid().extents().len() * extents[0], extents[1]];
        let boxes = (0..decomposition.domains()).filter_map(|number| {
            let block = decomposition.values(number, quantity, component)?;
            let first = vec![block.patch * extents[0] + block.first[0], block.first[1]];
            Some((decomposition.owner(number), first, block.extents.to_vec()))
        });
        let whole = RegularGrid::new(&rows[..]);
        let from = agree(comm, whole.decompose_boxes(boxes.collect(), comm.size()))?;
        let to = agree(comm, whole.decompose_boxes(vec![(root, vec![0, 0], rows.clone())], comm.size()))?;
        let moves = Redistribute::regular(comm, (&from, around), (&to, &Halo::uniform(0)))?;
        let extents = vec![rows[0] / extents[0], extents[0], extents[1]];
        Ok(ToOne { moves, rows, extents })
    }

    /// Checks that each domain has one field, and that each fits. The bind of the redistribution would name domains of its sides.
    fn check_fields(&self, fields: &[&Field]) -> Result<(), Error> {
        if matches!(self.kind(), Kind::Redistribution) {
            return Err(Error::OfRedistribution { what: "gathered" });
        }
        if matches!(self.kind(), Kind::Patches(patches) if patches.quantity.components() > 1)
            && self.component.is_none()
        {
            return Err(GatherError::Vectors.into());
        }
        fields.iter().enumerate().try_for_each(|(at, field)| {
            let refused = |error| Error::GatheredField { field: at, error: Box::new(error) };
            self.check_field(field).map_err(refused)
        })?;
        self.domains().try_for_each(|domain| {
            let number = self.domain_of(Some(domain.number()));
            match fields.iter().filter(|field| self.domain_of(field.domain) == number).count() {
                1 => Ok(()),
                fields => Err(GatherError::FieldCount { domain: domain.number(), fields }.into()),
            }
        })
    }

    fn check_field(&self, field: &Field) -> Result<(), Error> {
        let which = |domains| GatherError::WhichDomain { domains };
        let number = self.domain_of(field.domain).map_err(which)?;
        let Some(shape) = self.plan().domain(number) else {
            let (domain, here) =
                (self.domain_name(number).number, self.domains().map(|domain| domain.number()));
            return Err(GatherError::NotOnRank { domain, domains: here.collect() }.into());
        };
        CellLayout::new(&field.layout, shape).map(drop).map_err(Error::from)
    }

    /// Axes of its domains.
    fn axes(&self) -> usize {
        match self.kind() {
            Kind::Regular(grid) => grid.decomposition.extents().len(),
            Kind::Patches(_) => 2,
            Kind::Unstructured(_) | Kind::Redistribution => 1,
        }
    }
}

/// The extents of a component's values on all patches.
fn equal_extents(patches: &Patches, component: usize) -> Result<[usize; 2], GatherError> {
    let place = patches.quantity.place(component).unwrap_or([Along::Centre; 2]);
    let extents = |cells: &[usize; 2]| [0, 1].map(|axis| place[axis].count(cells[axis]));
    let all = patches.decomposition.grid().extents();
    let first = extents(&all[0]);
    match all.iter().position(|cells| extents(cells) != first) {
        None => Ok(first),
        Some(patch) => Err(GatherError::PatchExtents { patch, found: extents(&all[patch]), first }),
    }
}

/// The redistribution of all cells to one domain.
struct ToOne {
    moves: Redistribute,
    /// The extents of that domain on the rank that has it.
    rows: Vec<usize>,
    /// Those of the array, of as many cells.
    extents: Vec<usize>,
}

/// The array for all cells, and the same memory as the redistribution sees it.
struct Whole {
    all: Field,
    rows: Field,
}

impl ToOne {
    /// The array, on `root`.
    fn whole(&self, comm: &Communicator, root: usize, cell: &Layout) -> Result<Option<Whole>, Error> {
        if comm.rank() != root {
            return Ok(None);
        }
        let name = cell.named_element().name;
        let name = name.as_deref().unwrap_or_default();
        let layout = |extents: &[usize]| -> Result<Layout, Error> {
            Ok(Layout::c_order(cell.element(), &[extents, cell.extents()].concat())?.named(name))
        };
        let all = Field::allocate(comm, layout(&self.extents)?)?;
        let rows = all.view(all.base(), layout(&self.rows)?)?;
        Ok(Some(Whole { all, rows }))
    }
}

fn other_path(comm: &Communicator) -> Error {
    Error::Differs { rank: comm.rank(), what: "path" }
}

/// Checks that the name says a format that this build can write, and that the format has the elements of the fields.
fn check_file(path: &Path, fields: &[&Field], with_zarr: bool) -> Result<(), Error> {
    match path.extension() {
        Some(ending) if ending == "npy" => Ok(()),
        Some(ending) if ending == "zarr" && !with_zarr => {
            Err(GatherError::WithoutZarr { path: path.to_owned() }.into())
        }
        Some(ending) if ending == "zarr" => {
            let is_not_of_zarr = |element: &NamedElement| {
                matches!(element.element, ElementType::Bf16 | ElementType::Opaque(_))
            };
            let mut elements = fields.iter().map(|field| field.layout().named_element());
            elements.find(is_not_of_zarr).map_or(Ok(()), |element| {
                Err(Error::FileElement { format: "Zarr", element, instead: ".npy" })
            })
        }
        _ => Err(GatherError::Format { path: path.to_owned() }.into()),
    }
}

fn write(path: &Path, all: &Field) -> Result<(), Error> {
    let bytes = all.layout().span().len();
    let bytes = Array::<u8>::of_field(all.view(all.base(), Layout::c_order(ElementType::U8, &[bytes])?)?);
    let (element, extents) = (all.layout().named_element(), all.layout().extents());
    let written = match path.extension() {
        #[cfg(feature = "zarr")]
        Some(ending) if ending == "zarr" => {
            if !zarr::may_replace(path) {
                return Err(GatherError::NotAnArray { path: path.to_owned() }.into());
            }
            zarr::Whole { element: element.element, extents, bytes: &bytes.read()? }.save(path)
        }
        _ => file::replace(path, &[&npy::head(&element, extents), &bytes.read()?]),
    };
    written.map_err(|error| Error::Save { path: path.to_owned(), reason: error.to_string() })
}

fn check(
    comm: &Communicator,
    root: usize,
    fields: &[&Field],
    wanted: Option<&NamedElement>,
) -> Result<(), Error> {
    if root >= comm.size() {
        return Err(halocline_comm::CommError::NoSuchRank { rank: root, size: comm.size() }.into());
    }
    let mut fields = fields.iter().enumerate();
    fields.try_for_each(|(number, field)| check_elements(number, field.layout(), wanted))
}

fn check_elements(field: usize, layout: &Layout, wanted: Option<&NamedElement>) -> Result<(), Error> {
    let found = layout.named_element();
    match wanted {
        Some(wanted) if !is_element(&found, wanted) => {
            Err(GatherError::OtherElements { field, found, wanted: wanted.clone() }.into())
        }
        _ => Ok(()),
    }
}

/// What each cell of the field holds, the same in all fields of all ranks. A rank without a domain has no field to ask.
fn cell_of_all(comm: &Communicator, axes: usize, fields: &[&Field]) -> Result<Layout, Error> {
    let mine = agree(comm, cell_of_rank(comm.rank(), axes, fields))?;
    let all = comm.all_gather(&mine.as_ref().map_or(Vec::new(), encode))?;
    let cells = all.iter().enumerate().filter_map(|(rank, message)| Some((rank, decode(message)?)));
    let cells: Vec<(usize, CellContent)> = cells.collect();
    let named = cells.iter().find(|(_, cell)| cell.element.name.is_some());
    let (of, first) = named.or(cells.first()).ok_or(GatherError::NoField)?;
    for (rank, cell) in &cells {
        check_same((*rank, 0), cell, (*of, first))?;
    }
    let CellContent { element, extra, .. } = first;
    Ok(Layout::c_order(element.element, extra)?.named(element.name.as_deref().unwrap_or_default()))
}

/// What each cell of this rank's fields holds, with a name if one of them has it; `None` without a field.
fn cell_of_rank(rank: usize, axes: usize, fields: &[&Field]) -> Result<Option<CellContent>, Error> {
    let cell_of = |field: &&Field| {
        let layout = field.layout();
        let extra = layout.extra(&layout.axes(axes)?);
        let extra: Vec<usize> = extra.into_iter().map(|dim| layout.extents()[dim]).collect();
        Ok(CellContent { element: layout.named_element(), count: extra.iter().product(), extra })
    };
    let cells = fields.iter().map(cell_of).collect::<Result<Vec<_>, LayoutError>>()?;
    let named = cells.iter().find(|cell| cell.element.name.is_some());
    let Some(first) = named.or(cells.first()) else { return Ok(None) };
    for (number, cell) in cells.iter().enumerate() {
        check_same((rank, number), cell, (rank, first))?;
    }
    Ok(Some(first.clone()))
}

/// Compares what a cell holds in a field of rank `rank` with a field of rank `of`.
fn check_same(
    (rank, field): (usize, usize),
    cell: &CellContent,
    (of, first): (usize, &CellContent),
) -> Result<(), GatherError> {
    // As in a bind, dimensions of extent 1 do not count.
    let dimensions =
        |cell: &CellContent| cell.extra.iter().copied().filter(|extent| *extent != 1).collect::<Vec<_>>();
    if cell.element.fits(&first.element) && dimensions(cell) == dimensions(first) {
        return Ok(());
    }
    let (found, first) = (Box::new(cell.clone()), Box::new(first.clone()));
    Err(GatherError::CellsDiffer { rank, field, found, of, first })
}

fn encode(cell: &CellContent) -> Vec<u8> {
    let name = cell.element.name.as_deref().unwrap_or_default();
    let numbers = std::iter::once(u64::from(cell.element.element.code()));
    let numbers = numbers.chain(cell.extra.iter().map(|&extent| extent as u64));
    let mut message = (name.len() as u64).to_le_bytes().to_vec();
    message.extend(name.bytes());
    message.extend(numbers.flat_map(u64::to_le_bytes));
    message
}

/// What [`encode`] has written; `None` for the empty message of a rank without a field.
fn decode(message: &[u8]) -> Option<CellContent> {
    let (length, rest) = message.split_first_chunk()?;
    let (name, numbers) = rest.split_at_checked(u64::from_le_bytes(*length) as usize)?;
    let (element, extra) = numbers.as_chunks().0.split_first()?;
    let element = ElementType::from_code(u64::from_le_bytes(*element).try_into().ok()?)?;
    let name = Some(std::str::from_utf8(name).ok()?).filter(|name| !name.is_empty()).map(Into::into);
    let extra: Vec<usize> = extra.iter().map(|&extent| u64::from_le_bytes(extent) as usize).collect();
    Some(CellContent { element: NamedElement { element, name }, count: extra.iter().product(), extra })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_zarr_says_how_to_get_it() {
        let refused = |path: &str, with_zarr| check_file(Path::new(path), &[], with_zarr);
        let error = refused("t.zarr", false).expect_err("no Zarr");
        assert!(
            matches!(&error, Error::Gather(GatherError::WithoutZarr { path }) if path.ends_with("t.zarr"))
        );
        assert!(error.to_string().contains("enable the feature `zarr`"), "{error}");
        for (path, with_zarr) in [("t.zarr", true), ("t.npy", false)] {
            refused(path, with_zarr).expect("a format of this build");
        }
    }
}
