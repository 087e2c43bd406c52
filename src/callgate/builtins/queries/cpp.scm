; What C++ defines, and C's headers. A prototype is none, what a class declares is.
(namespace_definition name: (_) @name) @module
(class_specifier name: (_) @name body: (_)) @class
(struct_specifier name: (_) @name body: (_)) @struct
(union_specifier name: (_) @name body: (_)) @struct
(enum_specifier name: (_) @name body: (_)) @enum
(enumerator name: (identifier) @name) @constant
(concept_definition name: (identifier) @name) @type
(alias_declaration name: (type_identifier) @name) @type
(type_definition declarator: (type_identifier) @name) @type
(type_definition declarator: (pointer_declarator declarator: (type_identifier) @name)) @type
(function_definition declarator: (function_declarator declarator: [(identifier) (field_identifier) (qualified_identifier) (destructor_name)] @name)) @function
(function_definition declarator: (_ (function_declarator declarator: [(identifier) (field_identifier) (qualified_identifier)] @name))) @function
(function_definition declarator: (_ (_ (function_declarator declarator: [(identifier) (field_identifier) (qualified_identifier)] @name)))) @function
(field_declaration declarator: (function_declarator declarator: (field_identifier) @name)) @function
(field_declaration declarator: (_ (function_declarator declarator: (field_identifier) @name))) @function
(field_declaration_list (declaration declarator: (function_declarator declarator: [(identifier) (destructor_name)] @name)) @function)
(field_declaration declarator: (field_identifier) @name default_value: (_)? @until) @variable
(field_declaration declarator: (pointer_declarator declarator: (field_identifier) @name) default_value: (_)? @until) @variable
(field_declaration declarator: (reference_declarator (field_identifier) @name)) @variable
(field_declaration declarator: (array_declarator declarator: (field_identifier) @name)) @variable
(declaration declarator: (identifier) @name) @variable
(declaration declarator: (pointer_declarator declarator: (identifier) @name)) @variable
(declaration declarator: (array_declarator declarator: (identifier) @name)) @variable
(declaration declarator: (init_declarator declarator: [(identifier) (qualified_identifier)] @name value: (_) @until)) @variable
(declaration declarator: (init_declarator declarator: (pointer_declarator declarator: (identifier) @name) value: (_) @until)) @variable
(declaration declarator: (init_declarator declarator: (array_declarator declarator: (identifier) @name) value: (_) @until)) @variable
(preproc_def name: (identifier) @name) @macro
(preproc_function_def name: (identifier) @name) @macro
(lambda_expression) @local
