//! `#[derive(Element)]`: plain structs as elements of arrays. Use it through the crate `halocline`, which documents it.

use proc_macro::TokenStream;
use proc_macro2::Span;
use quote::{ToTokens, quote};
use syn::{Data, DeriveInput, Error, Field, Type, parse_macro_input, spanned::Spanned};

/// Implements `halocline::Element` for a plain struct: `#[repr(C)]` or `#[repr(transparent)]`, without type parameters, every
/// field an `Element` or an array of them, no padding, 1 to 256 bytes. The compiler refuses every other type.
///
/// Peers compare the name and the fields of the struct: fields of different structs are not exchanged with each other.
#[proc_macro_derive(Element)]
pub fn derive_element(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    implement(&input).unwrap_or_else(Error::into_compile_error).into()
}

fn implement(input: &DeriveInput) -> Result<proc_macro2::TokenStream, Error> {
    let fields = fields_of(input)?;
    check_generics(input)?;
    check_representation(input)?;
    let name = &input.ident;
    let description = describe(name, &fields);
    let types: Vec<&Type> = fields.iter().map(|field| &field.ty).collect();
    let elements = types.iter().map(|of| element_of(of));
    Ok(quote! {
        const _: () = {
            const fn is_element<T: ::halocline::Element>() {}
            #(is_element::<#elements>();)*
            let fields: usize = 0 #(+ ::core::mem::size_of::<#types>())*;
            let size = ::core::mem::size_of::<#name>();
            ::core::assert!(
                size == fields,
                "the struct has padding, whose bytes are not initialised: order the fields by size, or fill the gaps with fields"
            );
            ::core::assert!(size >= 1 && size <= 256, "an element has 1 to 256 bytes");
            ::core::assert!(::core::mem::align_of::<#name>() <= 64, "an element is aligned to at most 64 bytes");
        };
        // SAFETY: the constant above checks that all fields are elements, for which every byte pattern is valid and which have no
        // padding, pointer, destructor or interior mutability; that their sizes add up to that of the struct, so that it has no
        // padding; and its size and alignment.
        unsafe impl ::halocline::Element for #name {
            const TYPE: ::halocline::ElementType = ::halocline::ElementType::Opaque(::core::mem::size_of::<#name>() as u16);
            const RECORD: &'static str = #description;
        }
    })
}

fn fields_of(input: &DeriveInput) -> Result<Vec<&Field>, Error> {
    match &input.data {
        Data::Struct(data) => Ok(data.fields.iter().collect()),
        Data::Enum(_) => Err(Error::new(
            input.ident.span(),
            "an enum is no element of an array: not every byte pattern is one of its values; use an integer",
        )),
        Data::Union(_) => Err(Error::new(
            input.ident.span(),
            "a union is no element of an array: its bytes may be uninitialised; use a struct",
        )),
    }
}

fn check_generics(input: &DeriveInput) -> Result<(), Error> {
    match input.generics.params.is_empty() {
        true => Ok(()),
        false => Err(Error::new(
            input.generics.span(),
            "an element of an array has no type parameters, lifetimes or constants: their layouts cannot be checked here",
        )),
    }
}

fn check_representation(input: &DeriveInput) -> Result<(), Error> {
    let mut is_fixed = false;
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("repr")) {
        attribute.parse_nested_meta(|meta| {
            is_fixed |= meta.path.is_ident("C") || meta.path.is_ident("transparent");
            // The number of `align(8)`.
            if meta.input.peek(syn::token::Paren) {
                let content;
                syn::parenthesized!(content in meta.input);
                content.parse::<proc_macro2::TokenStream>()?;
            }
            Ok(())
        })?;
    }
    match is_fixed {
        true => Ok(()),
        false => Err(Error::new(
            Span::call_site(),
            "an element of an array needs #[repr(C)] or #[repr(transparent)]: otherwise each build may order its fields differently",
        )),
    }
}

/// The type whose values a field is made of: `T` of `[T; N]`.
fn element_of(of: &Type) -> &Type {
    match of {
        Type::Array(array) => element_of(&array.elem),
        other => other,
    }
}

/// The name that peers compare: of the struct, with its fields.
fn describe(name: &syn::Ident, fields: &[&Field]) -> String {
    let field = |(number, field): (usize, &&Field)| {
        let name = field.ident.as_ref().map_or_else(|| number.to_string(), ToString::to_string);
        format!(
            "{name}: {}",
            field.ty.to_token_stream().to_string().replace(" ;", ";").replace("[ ", "[").replace(" ]", "]")
        )
    };
    let fields: Vec<String> = fields.iter().enumerate().map(field).collect();
    format!("{name} {{ {} }}", fields.join(", "))
}
