; What Java defines. `@local` is what hides its inside, as a method does.
(class_declaration name: (identifier) @name) @class
(record_declaration name: (identifier) @name) @class
(interface_declaration name: (identifier) @name) @interface
(annotation_type_declaration name: (identifier) @name) @interface
(enum_declaration name: (identifier) @name) @enum
(enum_constant name: (identifier) @name) @constant
(method_declaration name: (identifier) @name) @function
(constructor_declaration name: (identifier) @name) @function
(compact_constructor_declaration name: (identifier) @name) @function
(annotation_type_element_declaration name: (identifier) @name) @function
(field_declaration declarator: (variable_declarator name: (identifier) @name value: (_)? @until)) @variable
(constant_declaration declarator: (variable_declarator name: (identifier) @name value: (_)? @until)) @constant
(lambda_expression) @local
(object_creation_expression) @local
