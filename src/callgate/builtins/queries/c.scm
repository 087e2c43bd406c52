; What C defines. A prototype is none.
(function_definition declarator: (function_declarator declarator: (identifier) @name)) @function
(function_definition declarator: (pointer_declarator declarator: (function_declarator declarator: (identifier) @name))) @function
(function_definition declarator: (pointer_declarator declarator: (pointer_declarator declarator: (function_declarator declarator: (identifier) @name)))) @function
(struct_specifier name: (type_identifier) @name body: (_)) @struct
(union_specifier name: (type_identifier) @name body: (_)) @struct
(enum_specifier name: (type_identifier) @name body: (_)) @enum
(enumerator name: (identifier) @name) @constant
(type_definition declarator: (type_identifier) @name) @type
(type_definition declarator: (pointer_declarator declarator: (type_identifier) @name)) @type
(type_definition declarator: (function_declarator declarator: (parenthesized_declarator (pointer_declarator declarator: (type_identifier) @name)))) @type
(field_declaration declarator: (field_identifier) @name) @variable
(field_declaration declarator: (pointer_declarator declarator: (field_identifier) @name)) @variable
(field_declaration declarator: (array_declarator declarator: (field_identifier) @name)) @variable
(declaration declarator: (identifier) @name) @variable
(declaration declarator: (pointer_declarator declarator: (identifier) @name)) @variable
(declaration declarator: (array_declarator declarator: (identifier) @name)) @variable
(declaration declarator: (init_declarator declarator: (identifier) @name value: (_) @until)) @variable
(declaration declarator: (init_declarator declarator: (pointer_declarator declarator: (identifier) @name) value: (_) @until)) @variable
(declaration declarator: (init_declarator declarator: (array_declarator declarator: (identifier) @name) value: (_) @until)) @variable
(preproc_def name: (identifier) @name) @macro
(preproc_function_def name: (identifier) @name) @macro
