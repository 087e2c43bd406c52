; What Rust defines. `@within` gives what is in it a name, and is no definition itself.
(impl_item type: (_) @name) @within
(struct_item name: (type_identifier) @name) @struct
(union_item name: (type_identifier) @name) @struct
(enum_item name: (type_identifier) @name) @enum
(enum_variant name: (identifier) @name) @constant
(trait_item name: (type_identifier) @name) @trait
(type_item name: (type_identifier) @name) @type
(mod_item name: (identifier) @name) @module
(function_item name: (identifier) @name) @function
(function_signature_item name: (identifier) @name) @function
(const_item name: (identifier) @name) @constant
(static_item name: (identifier) @name) @variable
(field_declaration name: (field_identifier) @name) @variable
(macro_definition name: (identifier) @name . (macro_rule) @until) @macro
(macro_definition name: (identifier) @name) @macro
(closure_expression) @local
